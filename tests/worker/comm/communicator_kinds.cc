#include "communicator_kinds.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/support/separate_device.h"
#include "worker/comm/data_link.h"
#include "worker/comm/staged_communicator.h"

namespace sherd {
namespace {

std::vector<std::unique_ptr<Communicator>> Form(Transport transport, int size,
                                                const GroupOptions& options) {
  std::vector<std::unique_ptr<DataListener>> listeners;
  GroupSpec group{.job_id = "job",
                  .epoch = 1,
                  .group = "data:0",
                  .secret = "s3cret",
                  .rank = 0,
                  .addresses = {}};
  for (int rank = 0; rank < size; ++rank) {
    listeners.push_back(*DataListener::Bind());
    group.addresses.push_back(AddressOf(*listeners.back(), transport));
  }
  std::vector<std::unique_ptr<Communicator>> members(static_cast<size_t>(size));
  RunRanks(size, [&](int rank) {
    GroupSpec own = group;
    own.rank = rank;
    auto formed = FormCommunicator(*listeners[static_cast<size_t>(rank)], own,
                                   {.transport = transport,
                                    .arena_bytes = options.arena_bytes,
                                    .operation_timeout = options.operation_timeout},
                                   nullptr);
    SHERD_CHECK(formed.ok());
    members[static_cast<size_t>(rank)] = *std::move(formed);
  });
  return members;
}

CommunicatorKind KindOf(Transport transport) {
  return {NameOf(transport), transport, [transport](int size, const GroupOptions& options) {
            return Form(transport, size, options);
          }};
}

}  // namespace

std::string NameOf(Transport transport) { return transport == Transport::kShm ? "shm" : "tcp"; }

std::string AddressOf(const DataListener& listener, Transport transport) {
  return transport == Transport::kShm ? listener.address() : listener.network_address();
}

std::vector<CommunicatorKind> AllCommunicatorKinds() {
  return {KindOf(Transport::kShm), KindOf(Transport::kTcp)};
}

std::vector<CommunicatorKind> StagedCommunicatorKinds() {
  std::vector<CommunicatorKind> kinds = AllCommunicatorKinds();
  for (CommunicatorKind& kind : kinds) {
    // One for all members of all groups; it lives as long as the kind. Results may go anywhere.
    const auto device =
        std::make_shared<SeparateDevice>(int64_t{1} << 30, SeparateDevice::Sides::kAny);
    kind.name = absl::StrCat("staged_", kind.name);
    kind.form = [form = kind.form, device](int size, const GroupOptions& options) {
      std::vector<std::unique_ptr<Communicator>> members = form(size, options);
      for (std::unique_ptr<Communicator>& member : members) {
        member = *StagedCommunicator::Make(std::move(member), *device,
                                           {.operation_timeout = options.operation_timeout,
                                            .gathered_bytes = size * options.arena_bytes});
      }
      return members;
    };
  }
  return kinds;
}

void RunRanks(int size, const std::function<void(int rank)>& rank_main) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { rank_main(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sherd
