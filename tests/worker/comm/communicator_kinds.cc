#include "communicator_kinds.h"

#include <thread>

#include "common/check.h"
#include "worker/comm/data_link.h"

namespace sherd {
namespace {

std::vector<std::unique_ptr<Communicator>> FormShm(int size, const GroupOptions& options) {
  std::vector<std::unique_ptr<DataListener>> listeners;
  GroupSpec group{.job_id = "job",
                  .epoch = 1,
                  .group = "data:0",
                  .secret = "s3cret",
                  .rank = 0,
                  .addresses = {}};
  for (int rank = 0; rank < size; ++rank) {
    listeners.push_back(*DataListener::Bind());
    group.addresses.push_back(listeners.back()->address());
  }
  std::vector<std::unique_ptr<Communicator>> members(static_cast<size_t>(size));
  RunRanks(size, [&](int rank) {
    GroupSpec own = group;
    own.rank = rank;
    auto formed = FormShmCommunicator(
        *listeners[static_cast<size_t>(rank)], own,
        {.arena_bytes = options.arena_bytes, .operation_timeout = options.operation_timeout},
        nullptr);
    SHERD_CHECK(formed.ok());
    members[static_cast<size_t>(rank)] = *std::move(formed);
  });
  return members;
}

}  // namespace

std::vector<CommunicatorKind> AllCommunicatorKinds() { return {{"shm", FormShm}}; }

void RunRanks(int size, const std::function<void(int rank)>& rank_main) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&, rank] { rank_main(rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sherd
