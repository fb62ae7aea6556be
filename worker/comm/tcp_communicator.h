#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/chunk.h"
#include "worker/comm/communicator.h"
#include "worker/comm/formation.h"
#include "worker/comm/op_descriptor.h"
#include "worker/comm/pages.h"
#include "worker/comm/stream_operations.h"

namespace sherd {

// A member's own memory in a group over TCP: its arena and room for one piece of every peer's leaf.
class TcpMemory {
 public:
  // Of the leaves of a reduction, what is received before it is folded.
  static constexpr int64_t kPieceBytes = 256 << 10;

  // kResourceExhausted, naming the arena's size, when memory does not suffice.
  static absl::StatusOr<TcpMemory> Create(int64_t arena_bytes, int peers);

  std::byte* arena() const { return arena_.begin(); }
  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t staging_bytes() const { return peers_ * kPieceBytes; }
  // kPieceBytes for the peer's leaf; peers count from 0.
  std::byte* staging(int peer) const { return staging_.begin() + peer * kPieceBytes; }

 private:
  PageMapping arena_;
  PageMapping staging_;
  int64_t arena_bytes_ = 0;
  int64_t peers_ = 0;
};

// Collectives of processes that share no memory, over one stream between every two members
// (stream_operations.h). What is sent is taken from the arena and received where it is wanted; only
// leaves of reductions are staged, a piece of each at a time, and folded in rank order, so that
// bits are those of ShmCommunicator.
class TcpCommunicator final : public Communicator {
 public:
  // `members` by rank: the own place is empty.
  TcpCommunicator(int rank, std::vector<Member> members, TcpMemory memory,
                  absl::Duration operation_timeout);

  int rank() const override { return rank_; }
  int size() const override { return operations_.size(); }
  absl::string_view transport() const override { return "tcp"; }
  std::byte* arena() const override { return memory_.arena(); }
  int64_t arena_bytes() const override { return memory_.arena_bytes(); }
  int64_t control_bytes() const override { return memory_.staging_bytes(); }

  Ticket AllGather(const void* shard, void* gathered, int64_t bytes) override;
  Ticket ReduceScatter(const void* input, int contributors, TreeAccumulator* into) override;
  Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                              int contributors) override;
  Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) override;
  Ticket Broadcast(void* data, int64_t bytes, int root) override;
  Ticket Barrier() override { return operations_.Barrier(); }
  Ticket Exchange(const void* record, void* records, int64_t bytes) override {
    return operations_.Exchange(record, records, bytes);
  }
  absl::Status Wait(Ticket ticket) override { return operations_.Wait(ticket); }
  void Abort(absl::string_view reason) override { operations_.Abort(reason); }
  std::vector<int> missing() const override { return operations_.missing(); }
  absl::Status status() const override { return operations_.status(); }
  WireCounts counts() const override { return operations_.counts(); }
  int ended_by() const override { return operations_.ended_by(); }

 private:
  void CheckInArena(const void* data, int64_t bytes) const;
  std::byte* StagingOf(int peer) const { return memory_.staging(peer < rank_ ? peer : peer - 1); }
  // Contributors' leaves of a piece, `own` for the own, in rank order.
  std::vector<const std::byte*> Leaves(const OpDescriptor& op, const std::byte* own) const;
  // Sums the leaves of a piece of `data`, of which that is the own.
  void ReducePiece(const OpDescriptor& op, const Chunk& piece, std::byte* data) const;
  // Leaves of `pieces` of this rank's part from every other contributor, one after another.
  void ReceiveLeaves(const OpDescriptor& op, const std::vector<Chunk>& pieces,
                     StreamWork& work) const;
  PeerTraffic AllReduceTraffic(const OpDescriptor& op, int peer, std::byte* data) const;

  const int rank_;
  const TcpMemory memory_;
  StreamOperations operations_;  // last: its thread uses the memory
};

}  // namespace sherd
