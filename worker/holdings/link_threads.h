#pragma once

#include <cstddef>
#include <list>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/event_signal.h"

namespace sherd {

// Threads that each serve one link until it ends, a bounded number of them. Thread-safe.
class LinkThreads {
 public:
  static constexpr size_t kMost = 256;

  // They are told by `stop` to end.
  explicit LinkThreads(EventSignal stop) : stop_(std::move(stop)) {}
  // Sets stop() and waits for all of them.
  ~LinkThreads();
  LinkThreads(const LinkThreads&) = delete;

  // Runs `serve`, which must end soon after stop() is set, on a thread of its own. False, and
  // nothing is done, when there are as many as may be.
  bool Start(absl::AnyInvocable<void()> serve) ABSL_LOCKS_EXCLUDED(mutex_);
  const EventSignal& stop() const { return stop_; }
  // Threads that have not ended.
  size_t running() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Threads = std::list<std::thread>;
  void End(Threads::iterator self) ABSL_LOCKS_EXCLUDED(mutex_);

  const EventSignal stop_;
  mutable absl::Mutex mutex_;
  Threads running_ ABSL_GUARDED_BY(mutex_);
  // At most one is left: who ends next waits for it.
  Threads ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
