#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/operation_queue.h"
#include "worker/comm/peer_monitor.h"

namespace sherd {

// Ends a member's operations at the first error of any member, its own or one that it hears of on
// the links, and passes it on to the others. Also hears who has left in order. Thread-safe.
class FailureRelay {
 public:
  struct Callbacks {
    // Called once, before anybody can see that the operations have ended; may be null.
    std::function<void()> before_end;
    // Somebody has left or the operations have ended: what waits must look again. From any thread.
    std::function<void()> wake;
  };

  // `links` by rank, -1 for the own; they are open until Leave returns. Ends the operations at
  // once, with kResourceExhausted, when the system has no descriptor to listen by.
  FailureRelay(int rank, std::vector<int> links, OperationQueue& queue, Callbacks callbacks);
  // Takes leave in order when no error came first, aborts when operations are under way, and
  // listens no longer. The queue is there until then, the relay until the queue's thread has ended.
  void Leave();

  void Abort(absl::string_view reason);
  // An operation here has failed.
  void Fail(const absl::Status& error);
  // The process of a peer has ended.
  void Lost(int peer);

  // The member has ended all its operations and takes no further part.
  bool left(int peer) const { return left_[static_cast<size_t>(peer)].load(); }
  // As Communicator::ended_by.
  int ended_by() const { return ended_by_.load(); }

 private:
  // The first error wins. `by`: the peer that it came from, or -1.
  void End(const absl::Status& error, const std::string& goodbye, int lost_peer, int by)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void OnGoodbye(int peer, const LinkGoodbye& goodbye);
  void SendGoodbye(const LinkGoodbye& goodbye);

  const int rank_;
  const std::vector<int> links_;
  OperationQueue& queue_;
  const Callbacks callbacks_;
  std::atomic<int> ended_by_{-1};
  absl::Mutex mutex_;                     // held to find out whose error is the first
  std::vector<std::atomic<bool>> left_;   // by rank
  std::unique_ptr<PeerMonitor> monitor_;  // null in a group of one
};

}  // namespace sherd
