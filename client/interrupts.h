#pragma once

#include <signal.h>

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sherd {

// Takes SIGINT, SIGTERM and SIGHUP for the whole process. Thread-safe but for construction.
class Interrupts {
 public:
  // Blocks the signals in this thread and those it starts later: construct before other threads.
  Interrupts();
  ~Interrupts();

  struct Callbacks {
    // The first signal, and every later one. Run on a thread of this class, not under a lock.
    std::function<void()> on_first;
    std::function<void()> on_repeated;
    // A few times a second.
    std::function<void()> on_tick;
  };
  // Starts to listen. Call once.
  void Listen(Callbacks callbacks);
  // After it no callback runs. Unless one came already, a signal then ends the process as if this
  // class had never been; else the signals stay blocked. On the thread that constructed this.
  // Idempotent.
  void StopListening();

  bool interrupted() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits; true, at once, when there was or comes a signal.
  bool InterruptedWithin(absl::Duration duration) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Serve(const Callbacks& callbacks);
  void TakeSignal(const Callbacks& callbacks);

  sigset_t blocked_before_;
  const int signals_;
  const int stop_;
  std::thread thread_;
  mutable absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sherd
