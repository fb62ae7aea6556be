#include "worker/comm/operation_queue.h"

#include <utility>

#include "common/check.h"
#include "common/steady_await.h"

namespace sherd {

OperationQueue::OperationQueue() : thread_([this] { Run(); }) {}

OperationQueue::~OperationQueue() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

Ticket OperationQueue::Enqueue(std::function<absl::Status()> operation) {
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(operation));
  return ++enqueued_;
}

absl::Status OperationQueue::Wait(Ticket ticket) {
  absl::MutexLock lock(&mutex_);
  SHERD_CHECK(ticket <= enqueued_);
  const auto ended = [this, ticket]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return Ended(ticket); };
  mutex_.Await(absl::Condition(&ended));
  return completed_ >= ticket ? absl::OkStatus() : status_;
}

bool OperationQueue::ended(Ticket ticket) const {
  absl::MutexLock lock(&mutex_);
  return Ended(ticket);
}

bool OperationQueue::Fail(absl::Status error) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return false;
  status_ = std::move(error);
  waiting_.clear();
  failed_.store(true, std::memory_order_release);
  return true;
}

absl::Status OperationQueue::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

absl::Status OperationQueue::AwaitFailure(absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !status_.ok(); };
  AwaitSteadily(mutex_, absl::Condition(&ended), patience);
  return status_;
}

bool OperationQueue::idle() const {
  absl::MutexLock lock(&mutex_);
  return waiting_.empty() && !running_;
}

void OperationQueue::Run() {
  const auto something_to_do = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopping_ || (!waiting_.empty() && status_.ok());
  };
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&something_to_do));
    if (stopping_) return;
    const std::function<absl::Status()> operation = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    mutex_.Unlock();
    absl::Status status = operation();
    if (!status.ok()) Fail(std::move(status));
    mutex_.Lock();
    running_ = false;
    if (status_.ok()) ++completed_;
  }
}

}  // namespace sherd
