#pragma once

#include <atomic>
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
#include "worker/comm/progress.h"

namespace sherd {

// Collectives of processes that map each other's memory. Inputs are read in place from the members'
// arenas; nothing is staged, and an all-reduce writes its sums there. Members follow each other
// through one progress word each (control_block.h).
//
// Every operation: publish the descriptor and arrive; wait for all to arrive and compare
// descriptors; move data; say done; wait for all to be done with this rank's arena.
class ShmCommunicator final : public Communicator {
 public:
  // `members` by rank: the own place has the own segment and no link.
  ShmCommunicator(int rank, std::vector<Member> members, absl::Duration operation_timeout);
  // Leaves in order when nothing is under way; else aborts.
  ~ShmCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  absl::string_view transport() const override { return "shm"; }
  std::byte* arena() const override { return own().arena(); }
  int64_t arena_bytes() const override { return own().arena_bytes(); }
  int64_t control_bytes() const override { return SharedSegment::control_bytes(); }

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
  using Body = std::function<absl::Status(const OpDescriptor& op)>;

  const SharedSegment& own() const { return members_[static_cast<size_t>(rank_)].segment; }
  const SharedSegment& segment(int rank) const {
    return members_[static_cast<size_t>(rank)].segment;
  }
  // Calls `visit` for the other ranks in turn, beginning after the own one so that not all read
  // from the same member at once.
  absl::Status ForEachPeer(const std::function<absl::Status(int peer)>& visit) const;

  // Where `data` (bytes) begins in the own arena, which it must lie in.
  int64_t ArenaOffset(const void* data, int64_t bytes) const;

  // An operation without a body reads nothing of others. `record` is put where they can read it.
  Ticket EnqueueOp(OpDescriptor op, std::string record, Body body);

  // The following run on the queue's thread.
  absl::Status RunOp(OpDescriptor op, const std::string& record, const Body& body);
  void Publish(const OpDescriptor& op, const std::string& record);
  void Advance(const OpDescriptor& op, Phase phase);
  absl::Status CheckCalls(const OpDescriptor& op) const;
  absl::Status AwaitAll(const OpDescriptor& op, Phase phase);
  bool HasPassed(int peer, const OpDescriptor& op, Phase phase) const;
  absl::Status Await(const OpDescriptor& op, int peer, Phase phase, const Deadline& deadline);
  absl::Status Late(const OpDescriptor& op, Phase phase) const;
  // An error when a peer failed, and so may have changed what was read of it.
  absl::Status CheckInputsHeld() const;
  // A member's data of the operation, `bytes` of which will be read or written.
  absl::StatusOr<std::byte*> PeerData(const OpDescriptor& op, int peer, int64_t bytes) const;
  absl::Status CopyFrom(const OpDescriptor& op, int peer, const std::byte* from, std::byte* to,
                        int64_t bytes);
  void CountSent(const OpDescriptor& op, int by, int64_t bytes);
  // The contributors' data of the operation, `data` for the own.
  absl::StatusOr<std::vector<const std::byte*>> Leaves(const OpDescriptor& op,
                                                       std::byte* data) const;
  // Sums the leaves' chunk into `data`, and from there into the chunk of every one of `copies`. All
  // of these may be leaves.
  absl::Status ReduceChunk(const OpDescriptor& op, const std::vector<const std::byte*>& leaves,
                           const Chunk& chunk, std::byte* data,
                           const std::vector<std::byte*>& copies = {}) const;
  // Every contributor but this rank has sent it `elements`.
  void CountContributions(const OpDescriptor& op, int64_t elements);

  void WakeOwnThread();

  const int rank_;
  const std::vector<Member> members_;
  const absl::Duration operation_timeout_;
  uint64_t sequence_ = 0;  // of the queue's thread: operations begun
  // What it waits for the others to reach: kWaits and a progress word; 0: it does not.
  static constexpr uint64_t kWaits = uint64_t{1} << 32;
  std::atomic<uint64_t> awaited_{0};
  mutable absl::Mutex calls_mutex_;
  // Calls and seconds alone; bytes are counted in the segments.
  WireCounts calls_ ABSL_GUARDED_BY(calls_mutex_);
  std::unique_ptr<FailureRelay> relay_;  // before the queue, whose thread uses it to the end
  OperationQueue queue_;
};

}  // namespace sherd
