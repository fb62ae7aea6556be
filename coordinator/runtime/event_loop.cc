#include "coordinator/runtime/event_loop.h"

#include <utility>

namespace sherd {

EventLoop::EventLoop(Controller& controller, const Clock& clock, CoordinatorMetrics& metrics,
                     size_t capacity)
    : controller_(controller), clock_(clock), metrics_(metrics), capacity_(capacity) {}

bool EventLoop::Post(Command command, absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || commands_.size() < capacity_;
  };
  await_.Await(mutex_, absl::Condition(&has_room), patience);
  if (stopped_ || commands_.size() >= capacity_) return false;
  commands_.push_back(std::move(command));
  metrics_.SetQueueDepth(static_cast<int64_t>(commands_.size()));
  return true;
}

std::deque<EventLoop::Command> EventLoop::TakeCommands() {
  const absl::Duration idle = controller_.NextDeadline() - clock_.Now();
  absl::MutexLock lock(&mutex_);
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || !commands_.empty();
  };
  await_.Await(mutex_, absl::Condition(&has_news), idle);
  metrics_.SetQueueDepth(0);
  return std::exchange(commands_, {});
}

bool EventLoop::stopped() {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

absl::Status EventLoop::Run() {
  absl::Status status;
  while (status.ok() && !stopped()) {
    const std::deque<Command> commands = TakeCommands();
    controller_.BeginTurn();
    for (const Command& command : commands) command(controller_);
    status = controller_.EndTurn();
  }
  Stop();
  // Destroyed outside the lock: a dropped command tells its caller.
  std::deque<Command> dropped;
  {
    absl::MutexLock lock(&mutex_);
    dropped = std::exchange(commands_, {});
  }
  dropped.clear();
  controller_.Stop();
  if (status.ok()) controller_.Seal();
  return status;
}

void EventLoop::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

}  // namespace sherd
