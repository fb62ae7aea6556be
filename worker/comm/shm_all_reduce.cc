#include <algorithm>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/shm_communicator.h"

namespace sherd {
namespace {

// Few enough to stay in a core's cache until the others come for them.
constexpr int64_t kPieceBytes = 256 << 10;

}  // namespace

// Rank r reduces chunk r of everyone's data into its own data, piece by piece, and copies pieces of
// the other chunks from the ranks that reduced them as they come, while they are in the cache. Both
// happen in place: a piece of chunk r of rank r is read by others only once r has told that it is
// reduced; a piece of chunk p of rank r is read by p alone, and only before p tells so, so that r
// may write to it after that. Nobody leaves before all have copied (kDone).
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
    const int64_t pieces = PiecesOf(op);
    std::vector<int64_t> copied(static_cast<size_t>(size()), 0);
    const auto copy = [&](int peer) {
      return CopyReducedPieces(op, peer, own_data, copied[static_cast<size_t>(peer)]);
    };
    for (int64_t index = 0; index < pieces; ++index) {
      SHERD_RETURN_IF_ERROR(ReduceChunk(op, leaves, PieceOf(op, rank_, index), own_data));
      Tell(own().control().reduced, Reduced(index).wanted);
      SHERD_RETURN_IF_ERROR(ForEachPeer(copy));
    }
    CountContributions(op, ChunkOf(op.count, size(), rank_).elements());
    const Deadline deadline(operation_timeout_);
    SHERD_RETURN_IF_ERROR(ForEachPeer([&](int peer) -> absl::Status {
      int64_t& next = copied[static_cast<size_t>(peer)];
      while (next < pieces) {
        SHERD_RETURN_IF_ERROR(Await(op, peer, Reduced(next), deadline));
        SHERD_RETURN_IF_ERROR(copy(peer));
      }
      CountSent(op, peer, ChunkOf(op.count, size(), peer).elements() * SizeOf(op.dtype));
      return absl::OkStatus();
    }));
    pieces_before_ += static_cast<uint32_t>(pieces);
    return absl::OkStatus();
  });
}

int64_t ShmCommunicator::PiecesOf(const OpDescriptor& op) const {
  const int64_t largest_chunk = (op.count + size() - 1) / size() * SizeOf(op.dtype);
  return (largest_chunk + kPieceBytes - 1) / kPieceBytes;
}

Chunk ShmCommunicator::PieceOf(const OpDescriptor& op, int rank, int64_t index) const {
  const Chunk chunk = ChunkOf(op.count, size(), rank);
  const int64_t elements = kPieceBytes / SizeOf(op.dtype);
  return {std::min(chunk.end, chunk.begin + index * elements),
          std::min(chunk.end, chunk.begin + (index + 1) * elements)};
}

ShmCommunicator::Milestone ShmCommunicator::Reduced(int64_t index) const {
  return {&ControlBlock::reduced, pieces_before_ + static_cast<uint32_t>(index) + 1,
          "did not finish the reduction"};
}

absl::Status ShmCommunicator::CopyReducedPieces(const OpDescriptor& op, int peer, std::byte* data,
                                                int64_t& next) {
  const int64_t element_bytes = SizeOf(op.dtype);
  SHERD_ASSIGN_OR_RETURN(const std::byte* theirs, PeerData(op, peer, op.count * element_bytes));
  for (const int64_t pieces = PiecesOf(op); next < pieces && HasPassed(peer, Reduced(next));
       ++next) {
    if (queue_.failed()) return queue_.status();
    const Chunk piece = PieceOf(op, peer, next);
    const int64_t offset = piece.begin * element_bytes;
    std::memcpy(data + offset, theirs + offset,
                static_cast<size_t>(piece.elements() * element_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sherd
