#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/comm/communicator.h"

namespace sherd {

// What a model asks of its tensor-parallel group, in fp32. Operations run one after another beside
// the caller, who begins one, computes what does not touch its buffers, and finishes it.
//
// Errors are sticky in the communicator: after the first one every operation returns at once and
// leaves garbage. So the model's own calls report none; whoever runs the model asks the
// communicator's status() after each of them and discards what was computed. Not thread-safe.
class TensorGroup {
 public:
  // `arena`: the model's region of the communicator's arena, TensorArenaActivationBytes
  // (plan/activations.h) at a multiple of 64. The communicator outlives the group, and the group
  // the model.
  TensorGroup(Communicator& communicator, std::byte* arena)
      : communicator_(communicator), arena_(arena) {}

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  std::byte* arena() const { return arena_; }

  // data (elements, arena) = the sum over members, on every member the same bits.
  Ticket StartAllReduce(float* data, int64_t elements);
  // Of `data` (elements, arena), a multiple of size() elements, this member's equal range becomes
  // the sum over members; the rest stays.
  Ticket StartReduceScatter(float* data, int64_t elements);
  // gathered (size() · bytes, anywhere) = every member's shard (bytes, arena) in their order.
  Ticket StartAllGather(const void* shard, void* gathered, int64_t bytes);
  // Blocks until the operation has ended, well or not.
  void Finish(Ticket ticket);

  // Blocked in Finish so far.
  double exposed_seconds() const { return exposed_seconds_; }
  // Blocked in Finish now. From any thread.
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  Communicator& communicator_;
  std::byte* const arena_;
  double exposed_seconds_ = 0;
  std::atomic<bool> waiting_{false};
};

}  // namespace sherd
