#include <algorithm>
#include <vector>

#include "common/check.h"
#include "worker/comm/tcp_communicator.h"

namespace sherd {
namespace {

// Leaves are sent so many pieces ahead of sums, so that a sum can be computed while the next leaves
// are under way.
constexpr int64_t kPiecesAhead = 2;

// The pieces of a chunk in order.
class Pieces {
 public:
  Pieces(const Chunk& chunk, DType dtype)
      : chunk_(chunk), step_(TcpMemory::kPieceBytes / SizeOf(dtype)) {}
  int64_t count() const { return (chunk_.elements() + step_ - 1) / step_; }
  Chunk operator[](int64_t index) const {
    const int64_t begin = chunk_.begin + index * step_;
    return {begin, std::min(chunk_.end, begin + step_)};
  }

 private:
  const Chunk chunk_;
  const int64_t step_;
};

// Calls `leaf(i)` for each i < leaves and `sum(i)` for each i < sums in the order of a stream that
// carries both. A sum comes after all leaves that it can depend on, on any rank, so that no stream
// waits for a piece that waits for it.
template <typename Leaf, typename Sum>
void ForEachInOrder(int64_t leaves, int64_t sums, const Leaf& leaf, const Sum& sum) {
  const int64_t turns = std::max(leaves, sums + kPiecesAhead);
  for (int64_t turn = 0; turn < turns; ++turn) {
    if (turn < leaves) leaf(turn);
    const int64_t summed = turn - kPiecesAhead;
    if (summed >= 0 && summed < sums) sum(summed);
  }
}

}  // namespace

// A peer's leaf of the own chunk goes through the staging room; its sums go into `data`, over the
// own leaf, which the peer has received whole before it sent the sum.
PeerTraffic TcpCommunicator::AllReduceTraffic(const OpDescriptor& op, int peer,
                                              std::byte* data) const {
  const int64_t element_bytes = SizeOf(op.dtype);
  const Pieces ours(ChunkOf(op.count, size(), rank_), op.dtype);
  const Pieces theirs(ChunkOf(op.count, size(), peer), op.dtype);
  PeerTraffic traffic;
  const auto send = [&](const Pieces& pieces, int64_t index, int64_t reduced) {
    traffic.out.push_back({data + pieces[index].begin * element_bytes,
                           pieces[index].elements() * element_bytes, reduced,
                           index + 1 == pieces.count()});
  };
  const auto receive = [&](const Pieces& pieces, int64_t index, bool leaf) {
    std::byte* const to = leaf ? StagingOf(peer) : data + pieces[index].begin * element_bytes;
    traffic.in.push_back({to, pieces[index].elements() * element_bytes, leaf ? index : 0, leaf});
  };
  ForEachInOrder(
      rank_ < op.contributors ? theirs.count() : 0, ours.count(),
      [&](int64_t index) { send(theirs, index, 0); },
      [&](int64_t index) { send(ours, index, index + 1); });
  ForEachInOrder(
      peer < op.contributors ? ours.count() : 0, theirs.count(),
      [&](int64_t index) { receive(ours, index, true); },
      [&](int64_t index) { receive(theirs, index, false); });
  return traffic;
}

// Rank r sums chunk r of everyone's data, as ShmCommunicator does, and sends the sums to all.
Ticket TcpCommunicator::AllReduce(void* data, int64_t elements, DType dtype, int contributors) {
  SHERD_CHECK(contributors >= 0 && contributors <= size());
  CheckInArena(data, elements * SizeOf(dtype));
  const OpDescriptor op{.collective = Collective::kAllReduce,
                        .dtype = dtype,
                        .count = elements,
                        .contributors = contributors};
  auto* const own_data = static_cast<std::byte*>(data);
  return operations_.Enqueue(op, [this, own_data](const OpDescriptor& op) {
    StreamWork work = operations_.NewWork();
    operations_.ForEachPeer([&](int peer) {
      work.traffic[static_cast<size_t>(peer)] = AllReduceTraffic(op, peer, own_data);
    });
    const Pieces pieces(ChunkOf(op.count, size(), rank_), op.dtype);
    work.pieces = pieces.count();
    work.reduce = [this, op, own_data, pieces](int64_t index) {
      ReducePiece(op, pieces[index], own_data);
    };
    return work;
  });
}

}  // namespace sherd
