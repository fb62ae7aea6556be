// What ShmCommunicator's operations do between arrival and done.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/shm_communicator.h"
#include "worker/comm/tile_tree.h"

namespace sherd {
namespace {

// Between two looks at whether the communicator has failed.
constexpr int64_t kCopyBytes = 1 << 20;

}  // namespace

int64_t ShmCommunicator::ArenaOffset(const void* data, int64_t bytes) const {
  if (bytes == 0) return 0;
  const int64_t offset = static_cast<const std::byte*>(data) - arena();
  SHERD_CHECK(offset >= 0 && bytes >= 0 && offset <= arena_bytes() - bytes);
  return offset;
}

absl::StatusOr<std::byte*> ShmCommunicator::PeerData(const OpDescriptor& op, int peer,
                                                     int64_t bytes) const {
  const SharedSegment& segment = this->segment(peer);
  const int64_t offset = segment.control().slots[op.sequence % 2].descriptor.arena_offset;
  if (offset < 0 || bytes < 0 || offset > segment.arena_bytes() - bytes) {
    return absl::InternalError(
        absl::StrCat("rank ", peer, "'s data of ", Describe(op), " lie outside its arena"));
  }
  return segment.arena() + offset;
}

absl::Status ShmCommunicator::CopyFrom(const OpDescriptor& op, int peer, const std::byte* from,
                                       std::byte* to, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += kCopyBytes) {
    if (queue_.failed()) return queue_.status();
    std::memcpy(to + done, from + done, static_cast<size_t>(std::min(kCopyBytes, bytes - done)));
  }
  CountSent(op, peer, bytes);
  return absl::OkStatus();
}

void ShmCommunicator::CountSent(const OpDescriptor& op, int by, int64_t bytes) {
  if (bytes == 0) return;
  ControlBlock::Sent& sent = segment(by).control().sent[static_cast<size_t>(op.collective)];
  // Ordered by the progress words: the source looks after all readers are done.
  sent.bytes.fetch_add(bytes, std::memory_order_relaxed);
  sent.messages.fetch_add(1, std::memory_order_relaxed);
}

Ticket ShmCommunicator::AllGather(const void* shard, void* gathered, int64_t bytes) {
  const OpDescriptor op{.collective = Collective::kAllGather,
                        .count = bytes,
                        .arena_offset = ArenaOffset(shard, bytes)};
  auto* const out = static_cast<std::byte*>(gathered);
  return EnqueueOp(op, "", [this, shard, out](const OpDescriptor& op) {
    std::byte* const own_place = out + rank_ * op.count;
    if (own_place != shard && op.count > 0) {
      std::memmove(own_place, shard, static_cast<size_t>(op.count));
    }
    return ForEachPeer([&](int peer) -> absl::Status {
      SHERD_ASSIGN_OR_RETURN(const std::byte* theirs, PeerData(op, peer, op.count));
      return CopyFrom(op, peer, theirs, out + peer * op.count, op.count);
    });
  });
}

Ticket ShmCommunicator::ReduceScatter(const void* input, int contributors, TreeAccumulator* into) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  const int64_t slice_bytes = into->elements() * SizeOf(into->dtype());
  const OpDescriptor op{.collective = Collective::kReduceScatter,
                        .dtype = into->dtype(),
                        .count = into->elements(),
                        .contributors = contributors,
                        .arena_offset = ArenaOffset(input, size() * slice_bytes)};
  return EnqueueOp(op, "", [this, input, into, slice_bytes](const OpDescriptor& op) {
    std::vector<const void*> leaves;
    for (int rank = 0; rank < op.contributors; ++rank) {
      const auto* whole = static_cast<const std::byte*>(input);
      if (rank != rank_) {
        SHERD_ASSIGN_OR_RETURN(whole, PeerData(op, rank, size() * slice_bytes));
      }
      leaves.push_back(whole + rank_ * slice_bytes);
    }
    into->Fold(leaves);
    for (int rank = 0; rank < op.contributors; ++rank) {
      if (rank != rank_) CountSent(op, rank, slice_bytes);
    }
    return absl::OkStatus();
  });
}

Ticket ShmCommunicator::ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments,
                                             DType dtype, int contributors) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  std::vector<Chunk> chunks;
  int64_t elements = 0;
  int64_t own_elements = 0;
  for (const int64_t segment : segments) {
    SHERD_CHECK(segment >= 0 && segment % size() == 0);
    const int64_t part = segment / size();
    const int64_t begin = elements + rank_ * part;
    chunks.push_back({begin, begin + part});
    elements += segment;
    own_elements += part;
  }
  const OpDescriptor op{.collective = Collective::kReduceScatter,
                        .dtype = dtype,
                        .count = elements,
                        .segments = static_cast<int32_t>(segments.size()),
                        .contributors = contributors,
                        .arena_offset = ArenaOffset(data, elements * SizeOf(dtype))};
  auto* const own_data = static_cast<std::byte*>(data);
  return EnqueueOp(op, "",
                   [this, own_data, own_elements,
                    chunks = std::move(chunks)](const OpDescriptor& op) -> absl::Status {
                     SHERD_ASSIGN_OR_RETURN(const std::vector<const std::byte*> leaves,
                                            Leaves(op, own_data));
                     for (const Chunk& chunk : chunks) {
                       SHERD_RETURN_IF_ERROR(ReduceChunk(op, leaves, chunk, own_data));
                     }
                     CountContributions(op, own_elements);
                     return absl::OkStatus();
                   });
}

absl::StatusOr<std::vector<const std::byte*>> ShmCommunicator::Leaves(const OpDescriptor& op,
                                                                      std::byte* data) const {
  std::vector<const std::byte*> leaves;
  for (int rank = 0; rank < op.contributors; ++rank) {
    leaves.push_back(data);
    if (rank == rank_) continue;
    SHERD_ASSIGN_OR_RETURN(leaves.back(), PeerData(op, rank, op.count * SizeOf(op.dtype)));
  }
  return leaves;
}

absl::Status ShmCommunicator::ReduceChunk(const OpDescriptor& op,
                                          const std::vector<const std::byte*>& leaves,
                                          const Chunk& chunk, std::byte* data,
                                          const std::vector<std::byte*>& copies) const {
  const int64_t element_bytes = SizeOf(op.dtype);
  TileTree tree(op.dtype);
  const int64_t tile_elements = TileTree::kTileBytes / element_bytes;
  for (int64_t first = chunk.begin; first < chunk.end; first += tile_elements) {
    if (queue_.failed()) return queue_.status();
    const int64_t elements = std::min(tile_elements, chunk.end - first);
    const int64_t offset = first * element_bytes;
    SumTile(tree, leaves, data, offset, elements);
    for (std::byte* copy : copies) {
      std::memcpy(copy + offset, data + offset, static_cast<size_t>(elements * element_bytes));
    }
  }
  return absl::OkStatus();
}

void ShmCommunicator::CountContributions(const OpDescriptor& op, int64_t elements) {
  for (int rank = 0; rank < op.contributors; ++rank) {
    if (rank != rank_) CountSent(op, rank, elements * SizeOf(op.dtype));
  }
}

Ticket ShmCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  SHERD_CHECK(root >= 0 && root < size());
  const OpDescriptor op{.collective = Collective::kBroadcast,
                        .count = bytes,
                        .root = root,
                        .arena_offset = ArenaOffset(data, bytes)};
  auto* const own_data = static_cast<std::byte*>(data);
  return EnqueueOp(op, "", [this, own_data](const OpDescriptor& op) -> absl::Status {
    if (rank_ == op.root) return absl::OkStatus();
    SHERD_ASSIGN_OR_RETURN(const std::byte* theirs, PeerData(op, op.root, op.count));
    return CopyFrom(op, op.root, theirs, own_data, op.count);
  });
}

Ticket ShmCommunicator::Barrier() {
  return EnqueueOp({.collective = Collective::kBarrier}, "", nullptr);
}

Ticket ShmCommunicator::Exchange(const void* record, void* records, int64_t bytes) {
  SHERD_CHECK(bytes >= 0 && bytes <= kMaxExchangeBytes);
  std::string copy(static_cast<const char*>(record), static_cast<size_t>(bytes));
  auto* const out = static_cast<std::byte*>(records);
  return EnqueueOp({.collective = Collective::kExchange, .count = bytes}, std::move(copy),
                   [this, out](const OpDescriptor& op) {
                     const auto& records_of = [&](int rank) {
                       return segment(rank).control().records[op.sequence % 2].data();
                     };
                     if (op.count > 0) {
                       std::memcpy(out + rank_ * op.count, records_of(rank_),
                                   static_cast<size_t>(op.count));
                     }
                     return ForEachPeer([&](int peer) {
                       return CopyFrom(op, peer, records_of(peer), out + peer * op.count, op.count);
                     });
                   });
}

}  // namespace sherd
