#include "plan/peer_addresses.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

// No address that a worker may advertise is longer.
constexpr size_t kLongestAddress = 256;

}  // namespace

void AppendPeer(int rank, absl::string_view address, absl::string_view previous_address,
                Peers& peers) {
  const auto [end, unused] = std::mismatch(address.begin(), address.end(), previous_address.begin(),
                                           previous_address.end());
  const auto shared = static_cast<size_t>(end - address.begin());
  v1::Peer& peer = *peers.Add();
  peer.set_rank(rank);
  peer.set_shared_bytes(static_cast<int32_t>(shared));
  peer.set_address(std::string(address.substr(shared)));
}

absl::StatusOr<PeerAddresses> ReadPeers(const Peers& peers) {
  PeerAddresses addresses;
  std::string address;
  int last = -1;
  for (const v1::Peer& peer : peers) {
    const auto shared = static_cast<size_t>(peer.shared_bytes());
    if (peer.rank() <= last || peer.shared_bytes() < 0 || shared > address.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the assignment's peer ", peer.rank(), " is out of order"));
    }
    address = absl::StrCat(address.substr(0, shared), peer.address());
    if (address.empty() || address.size() > kLongestAddress) {
      return absl::InvalidArgumentError(
          absl::StrCat("the assignment's peer ", peer.rank(), " has an address of ", address.size(),
                       " bytes; it must have 1 to ", kLongestAddress));
    }
    addresses.emplace_hint(addresses.end(), peer.rank(), address);
    last = peer.rank();
  }
  return addresses;
}

}  // namespace sherd
