#include "worker/comm/nccl/nccl_thread.h"

#include <algorithm>
#include <utility>

namespace sherd {

NcclThread::NcclThread(Call bind) {
  thread_ = std::thread([this, bind = std::move(bind)] { Work(bind); });
}

NcclThread::~NcclThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status NcclThread::Run(Call call, const Deadline& deadline) {
  auto task = std::make_shared<Task>();
  task->call = std::move(call);
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::AbortedError("the epoch's NCCL communicators are being aborted");
  waiting_.push_back(task);
  const auto ended = [this, &task]()
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return task->done || closed_; };
  await_.Await(mutex_, absl::Condition(&ended), deadline.left());
  if (task->done) return task->status;
  Drop(task.get());
  if (closed_) return absl::AbortedError("the epoch's NCCL communicators are being aborted");
  return absl::DeadlineExceededError("a call of NCCL did not return in time");
}

absl::Status NcclThread::RunToEnd(Call call) {
  auto task = std::make_shared<Task>();
  task->call = std::move(call);
  task->to_end = true;
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(task);
  mutex_.Await(absl::Condition(&task->done));
  return task->status;
}

void NcclThread::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [](const auto& task) { return !task->to_end; }),
                 waiting_.end());
}

bool NcclThread::AwaitIdle(absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !running_; };
  return await_.Await(mutex_, absl::Condition(&idle), patience);
}

void NcclThread::Drop(const Task* task) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [task](const auto& other) { return other.get() == task; }),
                 waiting_.end());
}

void NcclThread::Work(const Call& bind) {
  const absl::Status bound = bind();
  const auto something_to_do = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stopping_ || !waiting_.empty();
  };
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(&something_to_do));
    if (waiting_.empty()) return;
    const std::shared_ptr<Task> task = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    mutex_.Unlock();
    absl::Status status = bound.ok() ? task->call() : bound;
    mutex_.Lock();
    running_ = false;
    task->status = std::move(status);
    task->done = true;
  }
}

}  // namespace sherd
