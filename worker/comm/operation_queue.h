#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace sherd {

// Runs a communicator's operations one after another on a thread of its own until the first error,
// which every later one then has. An operation has to end soon after failed() turns true.
// Thread-safe.
class OperationQueue {
 public:
  OperationQueue();
  // Fail must have been called, or nothing be enqueued and unfinished.
  ~OperationQueue();

  Ticket Enqueue(std::function<absl::Status()> operation) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until the operation has ended, or will not begin; then no operation touches any buffer.
  absl::Status Wait(Ticket ticket) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether Wait would return at once.
  bool ended(Ticket ticket) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the queue with `error`; false when it has ended already, with the error that came first.
  bool Fail(absl::Status error) ABSL_LOCKS_EXCLUDED(mutex_);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for Fail at most that long; the status then.
  absl::Status AwaitFailure(absl::Duration patience) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool idle() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Ended(Ticket ticket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return completed_ >= ticket || (!status_.ok() && !running_);
  }

  std::atomic<bool> failed_{false};
  mutable absl::Mutex mutex_;
  std::deque<std::function<absl::Status()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Ticket enqueued_ ABSL_GUARDED_BY(mutex_) = 0;
  Ticket completed_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sherd
