#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace sherd {

// Runs tiles of a computation on a fixed number of threads. How work is cut into tiles never
// depends on the number of threads, so neither do results: each tile is computed whole by one
// thread.
class ThreadPool {
 public:
  // `threads` >= 1 counts the caller of ParallelFor, so threads - 1 are created.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int threads() const;
  // Calls tile(index, thread) for every index in [0, tiles), each exactly once, and returns when
  // all have ended. `thread` is in [0, threads()). Not reentrant; one caller at a time.
  void ParallelFor(int64_t tiles, const std::function<void(int64_t index, int thread)>& tile);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sherd
