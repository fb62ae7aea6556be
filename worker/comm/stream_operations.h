#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/failure_relay.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/formation.h"
#include "worker/comm/op_descriptor.h"
#include "worker/comm/operation_queue.h"
#include "worker/comm/peer_stream.h"

namespace sherd {

// What an operation moves over the streams and computes.
struct StreamWork {
  std::vector<PeerTraffic> traffic;  // by rank; the own is empty
  // Pieces are reduced one after another, each once every contributor's leaf of it is here.
  int64_t pieces = 0;
  std::function<void(int64_t piece)> reduce;
  // After the last piece, when all members have called the operation; may be null. What it sends by
  // other means it adds to the count; seconds, when it sets them, take the place of the clock's.
  std::function<absl::Status(WireCount& moved)> finish;
};

// The operations of a group that has one stream between every two members: to every peer the
// descriptor and what it is to have, in one go, and from every peer the same. An operation ends
// when all have arrived, all is received and the kernel has taken all that is sent: nothing is read
// from the caller's memory later. One thread does all of it, for all peers in turns.
//
// Errors, and what ends operations, are those of Communicator. Thread-safe as that.
class StreamOperations {
 public:
  // Makes an operation's work on the thread of the operations.
  using Planner = std::function<StreamWork(const OpDescriptor& op)>;
  struct Options {
    absl::Duration operation_timeout;
    // The number of the first operation. What number 0 moves is not counted: it is the group's
    // formation.
    uint64_t first_sequence = 1;
    // Called after the first error, before any operation ends with it on another thread's account;
    // from any thread, maybe more than once. May be null.
    std::function<void(const absl::Status& error)> on_end = nullptr;
  };

  // `members` by rank: the own place is empty. The operations have ended with kResourceExhausted
  // already when the system has no descriptor to wait by.
  StreamOperations(int rank, std::vector<Member> members, Options options);
  ~StreamOperations();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  Ticket Enqueue(OpDescriptor op, Planner plan) { return Enqueue(op, timeout_, std::move(plan)); }
  // With a time-out of its own.
  Ticket Enqueue(OpDescriptor op, absl::Duration timeout, Planner plan);
  Ticket Barrier();
  // As Communicator::Exchange. `then` may be null; it runs as StreamWork::finish.
  Ticket Exchange(const void* record, void* records, int64_t bytes, absl::Duration timeout,
                  std::function<absl::Status(WireCount& moved)> then);
  Ticket Exchange(const void* record, void* records, int64_t bytes) {
    return Exchange(record, records, bytes, timeout_, nullptr);
  }

  absl::Status Wait(Ticket ticket) { return queue_.Wait(ticket); }
  // Whether Wait would return at once.
  bool ended(Ticket ticket) const { return queue_.ended(ticket); }
  void Abort(absl::string_view reason) { relay_->Abort(reason); }
  // An operation here has failed.
  void Fail(const absl::Status& error) { relay_->Fail(error); }
  // Takes leave in order when nothing is under way, else aborts, and returns when no operation is
  // under way any more. Call once, with nothing enqueued afterwards; the destructor does if nobody
  // else has.
  void Leave();

  std::vector<int> missing() const;
  bool failed() const { return queue_.failed(); }
  absl::Status status() const { return queue_.status(); }
  // Waits for the first error at most that long; the status then.
  absl::Status AwaitFailure(absl::Duration patience) const { return queue_.AwaitFailure(patience); }
  WireCounts counts() const;
  int ended_by() const { return relay_->ended_by(); }

  // Traffic for nobody yet.
  StreamWork NewWork() const;
  // Calls `visit` for the other ranks in turn, beginning after the own one so that not all talk to
  // the same member first.
  void ForEachPeer(const std::function<void(int peer)>& visit) const;

 private:
  // The following run on the queue's thread.
  absl::Status RunOp(OpDescriptor op, absl::Duration timeout, const Planner& plan);
  absl::Status MoveAll(const OpDescriptor& op, absl::Duration timeout, const StreamWork& work);
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
  absl::Status Late(const OpDescriptor& op, absl::Duration timeout) const;
  void SetMissing(std::vector<int> missing);
  void Count(const OpDescriptor& op, const absl::Status& status, const WireCount& moved,
             double seconds);

  PeerStream& stream(int peer) { return streams_[static_cast<size_t>(peer)]; }
  const PeerStream& stream(int peer) const { return streams_[static_cast<size_t>(peer)]; }

  const int rank_;
  std::vector<Member> members_;
  const absl::Duration timeout_;
  const std::function<void(const absl::Status& error)> on_end_;
  const FileDescriptor wake_;        // an eventfd that ends AwaitStreams
  std::vector<PeerStream> streams_;  // by rank; of the queue's thread
  uint64_t next_sequence_;           // of the queue's thread
  bool left_ = false;                // of the caller's thread, as last_
  Ticket last_ = 0;
  mutable absl::Mutex counts_mutex_;
  WireCounts counts_ ABSL_GUARDED_BY(counts_mutex_);
  mutable absl::Mutex missing_mutex_;
  std::vector<int> missing_ ABSL_GUARDED_BY(missing_mutex_);
  std::unique_ptr<FailureRelay> relay_;  // before the queue, whose thread uses it to the end
  OperationQueue queue_;
};

}  // namespace sherd
