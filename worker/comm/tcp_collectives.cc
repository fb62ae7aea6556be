// What TcpCommunicator's operations send, receive and compute.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/check.h"
#include "worker/comm/tcp_communicator.h"
#include "worker/comm/tile_tree.h"

namespace sherd {
namespace {

void Copy(std::byte* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

// One message of one part.
void Send(const void* data, int64_t bytes, PeerTraffic& traffic) {
  if (bytes == 0) return;
  traffic.out.push_back({static_cast<const std::byte*>(data), bytes, 0, /*ends_message=*/true});
}

void Receive(std::byte* to, int64_t bytes, PeerTraffic& traffic) {
  if (bytes > 0) traffic.in.push_back({to, bytes, 0, /*leaf=*/false});
}

// Cuts a chunk into pieces that fit into what is staged of a leaf.
void AppendPieces(const Chunk& chunk, DType dtype, std::vector<Chunk>& pieces) {
  const int64_t step = TcpMemory::kPieceBytes / SizeOf(dtype);
  for (int64_t begin = chunk.begin; begin < chunk.end; begin += step) {
    pieces.push_back({begin, std::min(chunk.end, begin + step)});
  }
}

std::vector<Chunk> PiecesOf(const Chunk& chunk, DType dtype) {
  std::vector<Chunk> pieces;
  AppendPieces(chunk, dtype, pieces);
  return pieces;
}

}  // namespace

Ticket TcpCommunicator::AllGather(const void* shard, void* gathered, int64_t bytes) {
  CheckInArena(shard, bytes);
  auto* const out = static_cast<std::byte*>(gathered);
  return operations_.Enqueue({.collective = Collective::kAllGather, .count = bytes},
                             [this, shard, out](const OpDescriptor& op) {
                               Copy(out + rank_ * op.count, shard, op.count);
                               StreamWork work = operations_.NewWork();
                               operations_.ForEachPeer([&](int peer) {
                                 PeerTraffic& traffic = work.traffic[static_cast<size_t>(peer)];
                                 Send(shard, op.count, traffic);
                                 Receive(out + peer * op.count, op.count, traffic);
                               });
                               return work;
                             });
}

Ticket TcpCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  SHERD_CHECK(root >= 0 && root < size());
  CheckInArena(data, bytes);
  auto* const own_data = static_cast<std::byte*>(data);
  return operations_.Enqueue({.collective = Collective::kBroadcast, .count = bytes, .root = root},
                             [this, own_data](const OpDescriptor& op) {
                               StreamWork work = operations_.NewWork();
                               operations_.ForEachPeer([&](int peer) {
                                 PeerTraffic& traffic = work.traffic[static_cast<size_t>(peer)];
                                 if (rank_ == op.root) Send(own_data, op.count, traffic);
                                 if (peer == op.root) Receive(own_data, op.count, traffic);
                               });
                               return work;
                             });
}

std::vector<const std::byte*> TcpCommunicator::Leaves(const OpDescriptor& op,
                                                      const std::byte* own) const {
  std::vector<const std::byte*> leaves;
  for (int rank = 0; rank < op.contributors; ++rank) {
    leaves.push_back(rank == rank_ ? own : StagingOf(rank));
  }
  return leaves;
}

void TcpCommunicator::ReceiveLeaves(const OpDescriptor& op, const std::vector<Chunk>& pieces,
                                    StreamWork& work) const {
  work.pieces = op.contributors > 0 ? static_cast<int64_t>(pieces.size()) : 0;
  for (int peer = 0; peer < op.contributors; ++peer) {
    if (peer == rank_) continue;
    PeerTraffic& traffic = work.traffic[static_cast<size_t>(peer)];
    for (int64_t index = 0; index < work.pieces; ++index) {
      const int64_t bytes = pieces[static_cast<size_t>(index)].elements() * SizeOf(op.dtype);
      traffic.in.push_back({StagingOf(peer), bytes, index, /*leaf=*/true});
    }
  }
}

Ticket TcpCommunicator::ReduceScatter(const void* input, int contributors, TreeAccumulator* into) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  const int64_t slice_bytes = into->elements() * SizeOf(into->dtype());
  CheckInArena(input, size() * slice_bytes);
  const auto* const slices = static_cast<const std::byte*>(input);
  const OpDescriptor op{.collective = Collective::kReduceScatter,
                        .dtype = into->dtype(),
                        .count = into->elements(),
                        .contributors = contributors};
  return operations_.Enqueue(op, [this, slices, slice_bytes, into](const OpDescriptor& op) {
    StreamWork work = operations_.NewWork();
    operations_.ForEachPeer([&](int peer) {
      if (rank_ >= op.contributors) return;
      Send(slices + peer * slice_bytes, slice_bytes, work.traffic[static_cast<size_t>(peer)]);
    });
    if (op.contributors == 0) return work;
    std::vector<Chunk> pieces = PiecesOf({0, op.count}, op.dtype);
    ReceiveLeaves(op, pieces, work);
    into->BeginFold(op.contributors);
    const std::byte* const own = slices + rank_ * slice_bytes;
    work.reduce = [this, op, own, into, pieces = std::move(pieces)](int64_t index) {
      const Chunk& piece = pieces[static_cast<size_t>(index)];
      const auto leaves = Leaves(op, own + piece.begin * SizeOf(op.dtype));
      const std::vector<const void*> values(leaves.begin(), leaves.end());
      into->FoldRange(values, piece.begin, piece.elements());
    };
    work.finish = [into](WireCount&) {
      into->EndFold();
      return absl::OkStatus();
    };
    return work;
  });
}

void TcpCommunicator::ReducePiece(const OpDescriptor& op, const Chunk& piece,
                                  std::byte* data) const {
  const int64_t element_bytes = SizeOf(op.dtype);
  std::byte* const own = data + piece.begin * element_bytes;
  const auto leaves = Leaves(op, own);
  TileTree tree(op.dtype);
  const int64_t step = TileTree::kTileBytes / element_bytes;
  for (int64_t first = 0; first < piece.elements(); first += step) {
    SumTile(tree, leaves, own, first * element_bytes, std::min(step, piece.elements() - first));
  }
}

Ticket TcpCommunicator::ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments,
                                             DType dtype, int contributors) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  std::vector<Chunk> wholes;
  int64_t elements = 0;
  for (const int64_t segment : segments) {
    SHERD_CHECK(segment >= 0 && segment % size() == 0);
    wholes.push_back({elements, elements + segment});
    elements += segment;
  }
  CheckInArena(data, elements * SizeOf(dtype));
  const OpDescriptor op{.collective = Collective::kReduceScatter,
                        .dtype = dtype,
                        .count = elements,
                        .segments = static_cast<int32_t>(segments.size()),
                        .contributors = contributors};
  auto* const own_data = static_cast<std::byte*>(data);
  return operations_.Enqueue(
      op, [this, own_data, wholes = std::move(wholes)](const OpDescriptor& op) {
        const int64_t element_bytes = SizeOf(op.dtype);
        const auto part_of = [&](const Chunk& whole, int rank) {
          const int64_t part = whole.elements() / size();
          return Chunk{whole.begin + rank * part, whole.begin + (rank + 1) * part};
        };
        StreamWork work = operations_.NewWork();
        std::vector<Chunk> pieces;
        for (const Chunk& whole : wholes) AppendPieces(part_of(whole, rank_), op.dtype, pieces);
        operations_.ForEachPeer([&](int peer) {
          if (rank_ >= op.contributors) return;
          PeerTraffic& traffic = work.traffic[static_cast<size_t>(peer)];
          for (const Chunk& whole : wholes) {
            const Chunk part = part_of(whole, peer);
            if (part.elements() == 0) continue;
            traffic.out.push_back(
                {own_data + part.begin * element_bytes, part.elements() * element_bytes, 0, false});
          }
          if (!traffic.out.empty()) traffic.out.back().ends_message = true;
        });
        ReceiveLeaves(op, pieces, work);
        // Without contributors the sum is zero, and there is nothing to wait for.
        work.pieces = static_cast<int64_t>(pieces.size());
        work.reduce = [this, op, own_data, pieces = std::move(pieces)](int64_t index) {
          ReducePiece(op, pieces[static_cast<size_t>(index)], own_data);
        };
        return work;
      });
}

}  // namespace sherd
