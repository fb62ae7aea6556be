#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/shm_communicator.h"

namespace sherd {

// Rank r sums chunk r of everyone's data, tile by tile, and writes the sum to everyone's, whose
// tiles it has just read and so has in its cache. Nobody else touches chunk r of anyone between the
// arrival of all and the end of all: no rank waits for another in between.
Ticket ShmCommunicator::AllReduce(void* data, int64_t elements, DType dtype, int contributors) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  const OpDescriptor op{.collective = Collective::kAllReduce,
                        .dtype = dtype,
                        .count = elements,
                        .contributors = contributors,
                        .arena_offset = ArenaOffset(data, elements * SizeOf(dtype))};
  auto* const own_data = static_cast<std::byte*>(data);
  return EnqueueOp(op, "", [this, own_data](const OpDescriptor& op) -> absl::Status {
    SHERD_ASSIGN_OR_RETURN(const std::vector<const std::byte*> leaves, Leaves(op, own_data));
    std::vector<std::byte*> copies;
    SHERD_RETURN_IF_ERROR(ForEachPeer([&](int peer) -> absl::Status {
      SHERD_ASSIGN_OR_RETURN(std::byte* const theirs,
                             PeerData(op, peer, op.count * SizeOf(op.dtype)));
      copies.push_back(theirs);
      return absl::OkStatus();
    }));
    const Chunk chunk = ChunkOf(op.count, size(), rank_);
    SHERD_RETURN_IF_ERROR(ReduceChunk(op, leaves, chunk, own_data, copies));
    CountContributions(op, chunk.elements());
    for (size_t copy = 0; copy < copies.size(); ++copy) {
      CountSent(op, rank_, chunk.elements() * SizeOf(op.dtype));
    }
    return absl::OkStatus();
  });
}

}  // namespace sherd
