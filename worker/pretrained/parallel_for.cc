#include "worker/pretrained/parallel_for.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sherd {
namespace {

// What the threads share.
class Run {
 public:
  explicit Run(size_t count) : count_(count) {}

  // The next one that nobody has begun; `count` when there is none, or after an error.
  size_t Take() {
    const absl::MutexLock lock(&mutex_);
    return status_.ok() && next_ < count_ ? next_++ : count_;
  }
  void Finish(absl::Status status) {
    const absl::MutexLock lock(&mutex_);
    status_.Update(std::move(status));
  }
  absl::Status status() {
    const absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  const size_t count_;
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status ParallelFor(size_t count, int threads, absl::FunctionRef<absl::Status(size_t)> work) {
  Run run(count);
  const auto loop = [&] {
    for (size_t index = run.Take(); index < count; index = run.Take()) run.Finish(work(index));
  };
  {
    std::vector<std::jthread> others;
    const size_t most = std::min(count, static_cast<size_t>(threads));
    for (size_t thread = 1; thread < most; ++thread) others.emplace_back(loop);
    loop();
  }
  return run.status();
}

}  // namespace sherd
