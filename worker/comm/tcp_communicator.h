#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/comm/chunk.h"
#include "worker/comm/communicator.h"
#include "worker/comm/failure_relay.h"
#include "worker/comm/formation.h"
#include "worker/comm/op_descriptor.h"
#include "worker/comm/operation_queue.h"
#include "worker/comm/pages.h"
#include "worker/comm/peer_stream.h"

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

// Collectives of processes that share no memory, over one stream between every two members. What is
// sent is taken from the arena and received where it is wanted; only leaves of reductions are
// staged, a piece of each at a time, and folded in rank order, so that bits are those of
// ShmCommunicator.
//
// Every operation: to every peer the descriptor and what it is to have, in one go, and from every
// peer the same. It ends when all have arrived, all is received and the kernel has taken all that
// is sent: nothing is read from the arena later. One thread does all of it, for all peers in turns.
class TcpCommunicator final : public Communicator {
 public:
  // `members` by rank: the own place is empty.
  TcpCommunicator(int rank, std::vector<Member> members, TcpMemory memory,
                  absl::Duration operation_timeout);
  // Leaves in order when nothing is under way; else aborts.
  ~TcpCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
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
  Ticket Barrier() override;
  Ticket Exchange(const void* record, void* records, int64_t bytes) override;
  absl::Status Wait(Ticket ticket) override { return queue_.Wait(ticket); }
  void Abort(absl::string_view reason) override { relay_->Abort(reason); }
  std::vector<int> missing() const override;
  absl::Status status() const override { return queue_.status(); }
  WireCounts counts() const override;
  int ended_by() const override { return relay_->ended_by(); }

 private:
  // What an operation moves and computes.
  struct Work {
    std::vector<PeerTraffic> traffic;  // by rank; the own is empty
    // Pieces are reduced one after another, each once every contributor's leaf of it is here.
    int64_t pieces = 0;
    std::function<void(int64_t piece)> reduce;
    std::function<void()> finish;  // after the last; may be null
  };
  using Planner = std::function<Work(const OpDescriptor& op)>;

  void CheckInArena(const void* data, int64_t bytes) const;
  Ticket EnqueueOp(OpDescriptor op, Planner plan);

  // The following run on the queue's thread.
  absl::Status RunOp(OpDescriptor op, const Planner& plan);
  absl::Status MoveAll(const OpDescriptor& op, const Work& work);
  // Moves what can be moved at once; `moved` tells whether that was something.
  absl::Status MoveSome(const OpDescriptor& op, int64_t reduced, bool* moved);
  bool Completed() const;
  bool HasLeavesOf(const OpDescriptor& op, int64_t piece) const;
  // Sleeps until something can be moved, or for `patience`.
  void AwaitStreams(int64_t reduced, absl::Duration patience);
  // OK while no stream has ended, or the reason may still come.
  absl::Status CheckEnded(const OpDescriptor& op, absl::Duration since_moved);
  absl::Status CheckCall(const OpDescriptor& op, int peer) const;
  // Those from whom nothing has come; when all have come, those with whom something is to be moved.
  std::vector<int> Absent() const;
  absl::Status Late(const OpDescriptor& op) const;
  void SetMissing(std::vector<int> missing);
  void Count(const OpDescriptor& op, const absl::Status& status, double seconds);

  Work NewWork() const;
  // Calls `visit` for the other ranks in turn, beginning after the own one so that not all talk to
  // the same member first.
  void ForEachPeer(const std::function<void(int peer)>& visit) const;
  std::byte* StagingOf(int peer) const { return memory_.staging(peer < rank_ ? peer : peer - 1); }
  // Contributors' leaves of a piece, `own` for the own, in rank order.
  std::vector<const std::byte*> Leaves(const OpDescriptor& op, const std::byte* own) const;
  // Sums the leaves of a piece of `data`, of which that is the own.
  void ReducePiece(const OpDescriptor& op, const Chunk& piece, std::byte* data) const;
  // Leaves of `pieces` of this rank's part from every other contributor, one after another.
  void ReceiveLeaves(const OpDescriptor& op, const std::vector<Chunk>& pieces, Work& work) const;
  PeerTraffic AllReduceTraffic(const OpDescriptor& op, int peer, std::byte* data) const;
  PeerStream& stream(int peer) { return streams_[static_cast<size_t>(peer)]; }
  const PeerStream& stream(int peer) const { return streams_[static_cast<size_t>(peer)]; }

  const int rank_;
  std::vector<Member> members_;
  const TcpMemory memory_;
  const absl::Duration operation_timeout_;
  const FileDescriptor wake_;        // an eventfd that ends AwaitStreams
  std::vector<PeerStream> streams_;  // by rank; of the queue's thread
  uint64_t sequence_ = 0;            // of the queue's thread: operations begun
  mutable absl::Mutex counts_mutex_;
  WireCounts counts_ ABSL_GUARDED_BY(counts_mutex_);
  mutable absl::Mutex missing_mutex_;
  std::vector<int> missing_ ABSL_GUARDED_BY(missing_mutex_);
  std::unique_ptr<FailureRelay> relay_;  // before the queue, whose thread uses it to the end
  OperationQueue queue_;
};

}  // namespace sherd
