#include "common/steady_await.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace {

// The wall clock, as this process sees it, is set to so much later.
std::atomic<long> wall_clock_set_by{0};

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long failed = ::syscall(SYS_clock_gettime, clock, time);
  if (failed == 0 && clock == CLOCK_REALTIME) time->tv_sec += wall_clock_set_by;
  return static_cast<int>(failed);
}
extern "C" int gettimeofday(timeval* __restrict time, void* __restrict) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return 0;
}

namespace sherd {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Whoever waits while it is set back has seen it later than it is; what is waited for comes to
// nobody's help but the test's.
class SteadyAwaitTest : public ::testing::TestWithParam<long> {
 protected:
  SteadyAwaitTest() { wall_clock_set_by = GetParam(); }
  ~SteadyAwaitTest() override {
    {
      const std::lock_guard<std::mutex> lock(over_lock_);
      over_ = true;
    }
    over_changed_.notify_one();
    rescue_.join();
    wall_clock_set_by = 0;
  }

  absl::Mutex mutex_;
  bool holds_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyAwait await_;

 private:
  void Rescue() {
    std::unique_lock<std::mutex> lock(over_lock_);
    if (over_changed_.wait_for(lock, std::chrono::seconds(10), [this] { return over_; })) return;
    absl::MutexLock holds_lock(&mutex_);
    holds_ = true;
  }
  std::mutex over_lock_;
  std::condition_variable over_changed_;
  bool over_ = false;
  std::thread rescue_{[this] { Rescue(); }};
};

TEST_P(SteadyAwaitTest, EndsWhenTheTimeHasPassedWhateverTheWallClockDoes) {
  const Clock::time_point start = Clock::now();
  absl::MutexLock lock(&mutex_);
  EXPECT_FALSE(await_.Await(mutex_, absl::Condition(&holds_), absl::Milliseconds(50)));
  EXPECT_GE(SecondsSince(start), 0.05);
  EXPECT_FALSE(AwaitSteadily(mutex_, absl::Condition(&holds_), absl::Milliseconds(50)));
  EXPECT_GE(SecondsSince(start), 0.1);
  EXPECT_LT(SecondsSince(start), 5);
}

TEST_P(SteadyAwaitTest, EndsWhenTheConditionHolds) {
  const Clock::time_point start = Clock::now();
  std::thread other([this] {
    absl::MutexLock lock(&mutex_);
    holds_ = true;
  });
  {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(await_.Await(mutex_, absl::Condition(&holds_), absl::Hours(1)));
    EXPECT_TRUE(await_.Await(mutex_, absl::Condition(&holds_), absl::ZeroDuration()));
    holds_ = false;
    EXPECT_FALSE(await_.Await(mutex_, absl::Condition(&holds_), absl::ZeroDuration()));
    EXPECT_FALSE(await_.Await(mutex_, absl::Condition(&holds_), -absl::Seconds(1)));
  }
  other.join();
  EXPECT_LT(SecondsSince(start), 5);
}

// Also when the one that waits longest came first.
TEST_P(SteadyAwaitTest, EveryWaitEndsAtItsOwnTime) {
  std::atomic<int> ended{0};
  std::vector<int> order(3);
  std::vector<std::thread> threads;
  const Clock::time_point start = Clock::now();
  for (int which = 0; which < 3; ++which) {
    threads.emplace_back([&, which] {
      absl::MutexLock lock(&mutex_);
      await_.Await(mutex_, absl::Condition(&holds_), absl::Milliseconds(600 - which * 250));
      order[static_cast<size_t>(which)] = ended++;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
  EXPECT_GE(SecondsSince(start), 0.6);
  EXPECT_LT(SecondsSince(start), 5);
}

INSTANTIATE_TEST_SUITE_P(WallClockSet, SteadyAwaitTest, ::testing::Values(0, 3600, -3600),
                         [](const auto& info) {
                           return info.param == 0  ? "NotAtAll"
                                  : info.param > 0 ? "BackMeanwhile"
                                                   : "ForwardMeanwhile";
                         });

}  // namespace
}  // namespace sherd
