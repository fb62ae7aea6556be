#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// Data addresses by rank.
using PeerAddresses = std::map<int, std::string>;

using Peers = google::protobuf::RepeatedPtrField<v1::Peer>;

// Appends a peer, whose rank is above that of the last, which has address `previous_address`; ""
// when it is the first.
void AppendPeer(int rank, absl::string_view address, absl::string_view previous_address,
                Peers& peers);

// kInvalidArgument when ranks are not in order, or an address is empty, too long, or shares more
// than there is.
absl::StatusOr<PeerAddresses> ReadPeers(const Peers& peers);

}  // namespace sherd
