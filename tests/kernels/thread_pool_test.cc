#include "kernels/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <vector>

namespace sherd {
namespace {

TEST(ThreadPool, CallsEachTileExactlyOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tiles : {0, 1, 2, 3, 64, 1000}) {
      // Not atomic: the sanitizer sees two threads that share a tile.
      std::vector<int> calls(static_cast<size_t>(tiles));
      pool.ParallelFor(tiles, [&](int64_t index, int) { ++calls[static_cast<size_t>(index)]; });
      for (const int count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, GivesEachThreadItsOwnNumber) {
  ThreadPool pool(3);
  std::vector<std::vector<int64_t>> by_thread(3);
  for (int round = 0; round < 50; ++round) {
    pool.ParallelFor(40, [&](int64_t index, int thread) {
      by_thread.at(static_cast<size_t>(thread)).push_back(index);
    });
  }
  size_t calls = 0;
  for (const auto& tiles : by_thread) calls += tiles.size();
  EXPECT_EQ(calls, 50u * 40u);
}

// A worker that wakes late for one job must neither repeat it nor disturb the next.
TEST(ThreadPool, KeepsManyShortJobsApart) {
  ThreadPool pool(3);
  int64_t sum = 0;
  for (int64_t round = 0; round < 5000; ++round) {
    std::atomic<int64_t> round_sum{0};
    pool.ParallelFor(3, [&round_sum, round](int64_t index, int) { round_sum += round + index; });
    sum += round_sum;
  }
  EXPECT_EQ(sum, 3 * (4999 * 5000 / 2) + 5000 * 3);
}

// What tiles wrote is visible after the call without further synchronisation.
TEST(ThreadPool, PublishesWhatTilesWrote) {
  ThreadPool pool(2);
  std::vector<int64_t> values(257);
  for (int64_t round = 1; round <= 200; ++round) {
    pool.ParallelFor(257, [&](int64_t index, int) { values[static_cast<size_t>(index)] += index; });
    for (int64_t i = 0; i < 257; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i * round);
  }
}

TEST(ThreadPool, ReturnsOnlyWhenTheSlowestTileHasEnded) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::latch both_inside(2);
    std::vector<double> sums(2);
    pool.ParallelFor(2, [&](int64_t, int thread) {
      both_inside.arrive_and_wait();
      const int64_t terms = thread == 0 ? 1 : 200'000;
      double sum = 0;
      for (int64_t i = 1; i <= terms; ++i) sum += 1.0 / static_cast<double>(i);
      sums[static_cast<size_t>(thread)] = sum;
    });
    EXPECT_GT(sums[1], 12);
  }
}

TEST(ThreadPool, EndsWithoutEverWorking) {
  for (int round = 0; round < 20; ++round) ThreadPool pool(4);
}

}  // namespace
}  // namespace sherd
