#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sherd {

// Waits with time-outs by the monotonic clock. Those of absl::Mutex end by the wall clock: when
// that is set back by an hour while somebody waits, they last an hour longer, and nobody sends a
// heartbeat. Has a thread of its own. Thread-safe.
class SteadyAwait {
 public:
  SteadyAwait();
  ~SteadyAwait();
  SteadyAwait(const SteadyAwait&) = delete;

  // As mutex.AwaitWithTimeout: returns when `condition` holds or `timeout` has passed, and whether
  // it holds.
  bool Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiter {
    absl::Mutex* mutex;
    Clock::time_point end;
    bool expired = false;  // guarded by *mutex
  };
  using Waiters = std::list<std::shared_ptr<Waiter>>;

  void Run();
  // The one whose time ends first; null: nobody waits.
  std::shared_ptr<Waiter> Next() const;

  // Of the standard library, whose conditions know the monotonic clock.
  std::mutex lock_;
  std::condition_variable changed_;
  Waiters waiters_;
  bool stopping_ = false;
  std::thread thread_;
};

// For a wait that is rare: with a thread for as long as it lasts.
bool AwaitSteadily(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

}  // namespace sherd
