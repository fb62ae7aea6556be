#include "worker/model/tensor_group.h"

#include <chrono>

namespace sherd {

Ticket TensorGroup::StartAllReduce(float* data, int64_t elements) {
  return communicator_.AllReduce(data, elements, DType::kF32, size());
}

Ticket TensorGroup::StartReduceScatter(float* data, int64_t elements) {
  return communicator_.ReduceScatterInPlace(data, {elements}, DType::kF32, size());
}

Ticket TensorGroup::StartAllGather(const void* shard, void* gathered, int64_t bytes) {
  return communicator_.AllGather(shard, gathered, bytes);
}

void TensorGroup::Finish(Ticket ticket) {
  const auto start = std::chrono::steady_clock::now();
  waiting_.store(true, std::memory_order_relaxed);
  // Kept by the communicator; see the contract.
  communicator_.Wait(ticket).IgnoreError();
  waiting_.store(false, std::memory_order_relaxed);
  exposed_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace sherd
