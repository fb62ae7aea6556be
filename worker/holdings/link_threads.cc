#include "worker/holdings/link_threads.h"

#include <utility>

namespace sherd {

LinkThreads::~LinkThreads() {
  stop_.Set();
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  mutex_.Await(absl::Condition(&idle));
  for (std::thread& thread : ended_) thread.join();
}

bool LinkThreads::Start(absl::AnyInvocable<void()> serve) {
  absl::MutexLock lock(&mutex_);
  if (running_.size() >= kMost) return false;
  const auto self = running_.emplace(running_.end());
  *self = std::thread([this, self, serve = std::move(serve)]() mutable {
    serve();
    // What it holds goes before the thread counts as ended.
    serve = nullptr;
    End(self);
  });
  return true;
}

void LinkThreads::End(Threads::iterator self) {
  Threads before;
  {
    absl::MutexLock lock(&mutex_);
    before.swap(ended_);
    ended_.splice(ended_.end(), running_, self);
  }
  for (std::thread& thread : before) thread.join();
}

size_t LinkThreads::running() const {
  absl::MutexLock lock(&mutex_);
  return running_.size();
}

}  // namespace sherd
