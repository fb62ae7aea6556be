#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/data_link.h"

namespace sherd {

struct GroupOptions {
  int64_t arena_bytes = 1 << 20;
  absl::Duration operation_timeout = absl::Seconds(60);
};

// One implementation of Communicator for the conformance suite.
struct CommunicatorKind {
  std::string name;
  Transport transport;
  // A formed group of `size` ranks within this process, by rank.
  std::function<std::vector<std::unique_ptr<Communicator>>(int size, const GroupOptions&)> form;
  // Sums have the bits of the tree; else they are rounded in another order.
  bool tree_bits = true;
};
inline std::ostream& operator<<(std::ostream& out, const CommunicatorKind& kind) {
  return out << kind.name;
}

std::vector<CommunicatorKind> AllCommunicatorKinds();
// These behind a device with memory of its own, "staged_shm", ….
std::vector<CommunicatorKind> StagedCommunicatorKinds();
// What the conformance suite runs over: those of the program that links it.
std::vector<CommunicatorKind> ConformanceKinds();

// "shm", "tcp".
std::string NameOf(Transport transport);
// Where members of a group over `transport` find the listener.
std::string AddressOf(const DataListener& listener, Transport transport);

// Calls `rank_main(rank)` for each rank on a thread of its own and waits for all.
void RunRanks(int size, const std::function<void(int rank)>& rank_main);

}  // namespace sherd
