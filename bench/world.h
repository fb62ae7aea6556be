#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "bench/repetitions.h"
#include "worker/comm/communicator.h"
#include "worker/comm/data_link.h"

namespace sherd {

// This process as a member of a group of processes that compare.py introduces to each other: each
// says {"address": …} and hears all of them, in rank order, on one line.
class World {
 public:
  World(Repetitions& repetitions, int rank, int size, int64_t arena_bytes,
        Transport transport = Transport::kShm);
  Communicator& comm() { return *comm_; }
  // Hands the communicator over; it may not outlive this.
  std::unique_ptr<Communicator> TakeComm() { return std::move(comm_); }

 private:
  std::unique_ptr<DataListener> listener_;
  std::unique_ptr<Communicator> comm_;
};

}  // namespace sherd
