#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady_await.h"
#include "worker/comm/deadline.h"

namespace sherd {

// The one thread on which NCCL calls of an epoch are made, one after another. A call may hang: who
// waits for one has a deadline, and Close lets all of them go. Thread-safe.
class NcclThread {
 public:
  using Call = std::function<absl::Status()>;
  // `bind` runs there first; where it fails, so does every call.
  explicit NcclThread(Call bind);
  // Waits for the call under way.
  ~NcclThread();

  // Runs `call` there and returns its status. kAborted when Close comes first, kDeadlineExceeded
  // when it has not returned by then. A call that had begun goes on after both, so it owns what it
  // uses.
  absl::Status Run(Call call, const Deadline& deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs `call` to its end, also after Close.
  absl::Status RunToEnd(Call call) ABSL_LOCKS_EXCLUDED(mutex_);
  // No call begins from now on but those of RunToEnd.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits at most that long until no call is under way; whether that is so.
  bool AwaitIdle(absl::Duration patience) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Task {
    Call call;
    bool to_end = false;
    bool done = false;
    absl::Status status;
  };

  void Work(const Call& bind) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(const Task* task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable SteadyAwait await_;
  mutable absl::Mutex mutex_;
  std::deque<std::shared_ptr<Task>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sherd
