#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"

namespace sherd {
namespace {

// A few microseconds: long enough to catch the next operation of a step, too short to take a core
// from another process.
constexpr int kSpins = 40;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Job {
  const std::function<void(int64_t, int)>* tile;
  int64_t tiles;
  std::atomic<int64_t> next{0};
};

void RunTiles(Job& job, int thread) {
  for (;;) {
    const int64_t index = job.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.tiles) return;
    (*job.tile)(index, thread);
  }
}

}  // namespace

struct ThreadPool::Impl {
  int threads = 1;
  absl::Mutex mutex;
  absl::CondVar opened;  // a job waits for workers, or the pool ends
  absl::CondVar left;    // the last worker inside has left the closed job
  Job* job ABSL_GUARDED_BY(mutex) = nullptr;
  bool ending ABSL_GUARDED_BY(mutex) = false;
  // Jobs opened so far; written under the mutex, read by spinning workers without it.
  std::atomic<uint64_t> generation{0};
  // Workers inside the open job; likewise.
  std::atomic<int> inside{0};
  std::vector<std::thread> workers;

  void Open(Job* next) ABSL_LOCKS_EXCLUDED(mutex) {
    absl::MutexLock lock(&mutex);
    job = next;
    generation.store(generation.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    opened.SignalAll();
  }

  // After this nobody touches the job.
  void Close() ABSL_LOCKS_EXCLUDED(mutex) {
    {
      absl::MutexLock lock(&mutex);
      job = nullptr;
      if (inside.load(std::memory_order_relaxed) == 0) return;
    }
    for (int spin = 0; spin < kSpins; ++spin) {
      if (inside.load(std::memory_order_acquire) == 0) return;
      Pause();
    }
    absl::MutexLock lock(&mutex);
    while (inside.load(std::memory_order_relaxed) != 0) left.Wait(&mutex);
  }

  // Waits for a job newer than `seen`. nullptr when that job is already over; `seen` is moved on.
  // False when the pool ends.
  bool Enter(uint64_t& seen, Job*& entered) ABSL_LOCKS_EXCLUDED(mutex) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen) break;
      Pause();
    }
    absl::MutexLock lock(&mutex);
    while (!ending && generation.load(std::memory_order_relaxed) == seen) opened.Wait(&mutex);
    if (ending) return false;
    seen = generation.load(std::memory_order_relaxed);
    entered = job;
    if (job != nullptr) inside.store(inside.load(std::memory_order_relaxed) + 1);
    return true;
  }

  void Leave() ABSL_LOCKS_EXCLUDED(mutex) {
    absl::MutexLock lock(&mutex);
    const int remaining = inside.load(std::memory_order_relaxed) - 1;
    inside.store(remaining, std::memory_order_release);
    if (remaining == 0) left.Signal();
  }

  void Work(int thread) {
    uint64_t seen = 0;
    Job* entered = nullptr;
    while (Enter(seen, entered)) {
      if (entered == nullptr) continue;
      RunTiles(*entered, thread);
      Leave();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  SHERD_CHECK(threads >= 1);
  impl_->threads = threads;
  for (int thread = 1; thread < threads; ++thread) {
    impl_->workers.emplace_back([impl = impl_.get(), thread] { impl->Work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->ending = true;
    impl_->opened.SignalAll();
  }
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const { return impl_->threads; }

void ThreadPool::ParallelFor(int64_t tiles,
                             const std::function<void(int64_t index, int thread)>& tile) {
  Job job{&tile, tiles};
  const bool alone = impl_->workers.empty() || tiles <= 1;
  if (!alone) impl_->Open(&job);
  RunTiles(job, 0);
  if (!alone) impl_->Close();
}

}  // namespace sherd
