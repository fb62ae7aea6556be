#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/steady_await.h"
#include "coordinator/runtime/controller.h"
#include "coordinator/runtime/coordinator_metrics.h"

namespace sherd {

// Gives a Controller its thread: whoever calls Run owns it until Run returns; all others send it
// commands through a bounded queue.
class EventLoop {
 public:
  using Command = std::function<void(Controller&)>;

  EventLoop(Controller& controller, const Clock& clock, CoordinatorMetrics& metrics,
            size_t capacity = 4096);
  EventLoop(const EventLoop&) = delete;

  // Runs `command` on the loop's thread, in the order of arrival. Waits for room in the queue for
  // at most `patience`. False, and the command is dropped, when there is none or the loop has
  // stopped. Any thread but the loop's own.
  bool Post(Command command, absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);

  // Works until Stop, and seals the log, or until that cannot be written, which is the error
  // returned. Drops the commands that are left.
  absl::Status Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Any thread.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Waits for commands, or until the controller has something to do.
  std::deque<Command> TakeCommands() ABSL_LOCKS_EXCLUDED(mutex_);
  bool stopped() ABSL_LOCKS_EXCLUDED(mutex_);

  Controller& controller_;
  const Clock& clock_;
  CoordinatorMetrics& metrics_;
  const size_t capacity_;
  absl::Mutex mutex_;
  SteadyAwait await_;
  std::deque<Command> commands_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sherd
