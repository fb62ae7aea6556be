#include "bench/world.h"

#include <iostream>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/check.h"

namespace sherd {

World::World(Repetitions& repetitions, int rank, int size, int64_t arena_bytes,
             Transport transport) {
  absl::StatusOr<std::unique_ptr<DataListener>> listener = DataListener::Bind();
  SHERD_CHECK(listener.ok());
  listener_ = *std::move(listener);
  repetitions.Say("address", transport == Transport::kShm ? listener_->address()
                                                          : listener_->network_address());
  GroupSpec group;
  group.job_id = "bench";
  group.epoch = 1;
  group.group = "data:0";
  group.secret = "bench";
  group.rank = rank;
  group.addresses = absl::StrSplit(repetitions.Hear(), ' ');
  SHERD_CHECK(static_cast<int>(group.addresses.size()) == size);
  FormOptions options;
  options.transport = transport;
  options.arena_bytes = arena_bytes;
  // The others wait while compare.py lets somebody else run.
  options.operation_timeout = absl::Minutes(30);
  absl::StatusOr<std::unique_ptr<Communicator>> comm =
      FormCommunicator(*listener_, group, options, nullptr);
  if (!comm.ok()) std::cerr << comm.status() << std::endl;
  SHERD_CHECK(comm.ok());
  comm_ = *std::move(comm);
}

}  // namespace sherd
