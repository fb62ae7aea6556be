// What the executor promises of broken kernels, with kernels that break one rule each.
#include "tests/simt/executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/simt/device.h"
#include "tests/simt/sanitizer_reports.h"

namespace sherd {
namespace {

using simt::Executor;
using simt::Order;
using simt::SanitizerReports;

__global__ void NumbersKernel(int* to) {
  SIMT_SHARED(int, numbers, [64]);
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] =
      numbers[blockDim.x - 1 - threadIdx.x] + static_cast<int>(blockIdx.x) * 1000;
}

// Which thread comes first, and which block.
__global__ void FirstKernel(int* blocks, int* thread) {
  SIMT_SHARED(int, first, [1]);
  if (first[0] == -1) first[0] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  *thread = first[0];
  if (*blocks == -1) *blocks = static_cast<int>(blockIdx.x);
}

__global__ void SumKernel(float* to) {
  float value = static_cast<float>(threadIdx.x);
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  const unsigned odd = __ballot_sync(~0u, threadIdx.x % 2 != 0);
  to[threadIdx.x] = value + static_cast<float>(__popc(odd)) / 64 + __shfl_sync(~0u, value, 3);
}

__global__ void VoteKernel(int* to, int chosen) {
  to[threadIdx.x] = __syncthreads_or(static_cast<int>(threadIdx.x) == chosen);
}

__global__ void DivergentKernel() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void ReturningKernel() {
  if (threadIdx.x == 7) return;
  __syncthreads();
}
__global__ void DeadlockKernel() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}
__global__ void OutsideKernel() { __syncwarp(0xfffffffeu); }
__global__ void DifferingKernel() { __syncwarp(threadIdx.x < 16 ? ~0u : 0xffff0001u); }
__global__ void MissingLaneKernel() {
  if (threadIdx.x < 16) return;
  __syncwarp();
}

__global__ void CopyKernel(const float* from, float* early, float* late) {
  SIMT_SHARED(float, room, [128]);
  CopyAsync16(room + 4 * threadIdx.x, from + 4 * threadIdx.x);
  CommitCopies();
  early[threadIdx.x] = room[4 * threadIdx.x];
  WaitForCopies<0>();
  late[threadIdx.x] = room[4 * threadIdx.x];
}

__global__ void UnwrittenKernel(float* to) {
  SIMT_SHARED(float, room, [32]);
  SIMT_DYNAMIC_SHARED(float, dynamic);
  to[threadIdx.x] = threadIdx.x % 2 == 0 ? room[threadIdx.x] : dynamic[threadIdx.x];
}
__global__ void LargeKernel() {
  SIMT_SHARED(float, room, [1 << 16]);
  room[threadIdx.x] = 0;
}

class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() { Executor::Use(&executor_); }
  ~ExecutorTest() override { Executor::Use(nullptr); }

  template <typename Kernel, typename... Arguments>
  void Launch(const Kernel& kernel, int blocks, int threads, size_t shared,
              Arguments... arguments) {
    launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
           shared, nullptr, arguments...);
  }
  // Breaks a rule; in any order, and says so at a line of this file.
  template <typename Kernel>
  void ExpectReport(const Kernel& kernel, const std::string& what, const std::string& where) {
    for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
      executor_.set_order(order, 3);
      Launch(kernel, 2, 32, 0);
      const std::string report = executor_.report();
      EXPECT_NE(report.find(what), std::string::npos) << report;
      EXPECT_NE(report.find("executor_test.cc:"), std::string::npos) << report;
      EXPECT_NE(report.find(std::string("kernel ") + kernel.name), std::string::npos) << report;
      EXPECT_NE(report.find("block ("), std::string::npos) << report;
      EXPECT_NE(report.find(where), std::string::npos) << report;
      executor_.Clear();
    }
  }

  Executor executor_;
};

TEST_F(ExecutorTest, RunsEveryThreadOfEveryBlockInAnyOrder) {
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    executor_.set_order(order);
    std::vector<int> numbers(3 * 64, -1);
    Launch(SIMT_KERNEL(NumbersKernel), 3, 64, 0, numbers.data());
    EXPECT_EQ(executor_.report(), "");
    for (int i = 0; i < 3 * 64; ++i) {
      EXPECT_EQ(numbers[static_cast<size_t>(i)], i / 64 * 1000 + 63 - i % 64);
    }
  }
}

TEST_F(ExecutorTest, TakesThreadsAndBlocksInItsOrder) {
  const auto first = [&](Order order, uint32_t seed) {
    executor_.set_order(order, seed);
    int block = -1, thread = -1;
    Launch(SIMT_KERNEL(FirstKernel), 50, 64, 0, &block, &thread);
    return std::pair(block, thread);
  };
  EXPECT_EQ(first(Order::kForward, 1), std::pair(0, 0));
  EXPECT_EQ(first(Order::kReverse, 1), std::pair(49, 63));
  EXPECT_EQ(first(Order::kRandom, 5), first(Order::kRandom, 5));
  EXPECT_NE(first(Order::kRandom, 5), first(Order::kRandom, 6));
}

TEST_F(ExecutorTest, LanesExchangeValues) {
  for (const Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
    executor_.set_order(order);
    std::vector<float> sums(32);
    Launch(SIMT_KERNEL(SumKernel), 1, 32, 0, sums.data());
    for (const float sum : sums) EXPECT_EQ(sum, 496 + 0.25f + 496);
    std::vector<int> votes(96);
    Launch(SIMT_KERNEL(VoteKernel), 1, 96, 0, votes.data(), 70);
    EXPECT_EQ(votes, std::vector<int>(96, 1));
    Launch(SIMT_KERNEL(VoteKernel), 1, 96, 0, votes.data(), 200);
    EXPECT_EQ(votes, std::vector<int>(96, 0));
  }
}

TEST_F(ExecutorTest, ReportsBrokenRulesWithTheirPlace) {
  ExpectReport(SIMT_KERNEL(DivergentKernel), "barrier divergence: other threads wait elsewhere",
               "thread (");
  ExpectReport(SIMT_KERNEL(ReturningKernel), "barrier divergence", "thread (");
  ExpectReport(SIMT_KERNEL(DeadlockKernel), "deadlock", "for its warp");
  ExpectReport(SIMT_KERNEL(OutsideKernel), "lane outside of its mask fffffffe", "thread (0, 0, 0)");
  ExpectReport(SIMT_KERNEL(DifferingKernel), "differing masks in one warp", "thread (");
}

TEST_F(ExecutorTest, ReportsLanesThatHaveReturned) {
  for (const Order order : {Order::kForward, Order::kReverse}) {
    executor_.set_order(order);
    Launch(SIMT_KERNEL(MissingLaneKernel), 1, 32, 0);
    EXPECT_NE(executor_.report().find("returned"), std::string::npos) << executor_.report();
    executor_.Clear();
  }
}

TEST_F(ExecutorTest, RunsNothingAfterAFailure) {
  Launch(SIMT_KERNEL(OutsideKernel), 1, 32, 0);
  std::vector<int> numbers(64, -1);
  Launch(SIMT_KERNEL(NumbersKernel), 1, 64, 0, numbers.data());
  EXPECT_EQ(numbers[0], -1);
  executor_.Clear();
  Launch(SIMT_KERNEL(NumbersKernel), 1, 64, 0, numbers.data());
  EXPECT_EQ(numbers[0], 63);
}

TEST_F(ExecutorTest, RefusesWhatNoDeviceLaunches) {
  std::vector<int> numbers(2048);
  const auto refuses = [&](int blocks, int threads, size_t shared) {
    Launch(SIMT_KERNEL(NumbersKernel), blocks, threads, shared, numbers.data());
    const bool refused = executor_.report().find("not launchable") != std::string::npos;
    executor_.Clear();
    return refused;
  };
  EXPECT_TRUE(refuses(0, 32, 0));
  EXPECT_TRUE(refuses(1, 2048, 0));
  EXPECT_TRUE(refuses(1, 32, 228 << 10));
  Launch(SIMT_KERNEL(LargeKernel), 1, 32, 0);
  EXPECT_NE(executor_.report().find("more shared memory"), std::string::npos);
}

TEST_F(ExecutorTest, SharedMemoryAndUnfinishedCopiesAreNaN) {
  std::vector<float> values(32);
  Launch(SIMT_KERNEL(UnwrittenKernel), 1, 32, 128, values.data());
  for (const float value : values) EXPECT_TRUE(std::isnan(value));
  std::vector<float> from(132, 2.5f), early(32), late(32);
  float* aligned = from.data();
  while (reinterpret_cast<uintptr_t>(aligned) % 16 != 0) ++aligned;
  Launch(SIMT_KERNEL(CopyKernel), 1, 32, 0, aligned, early.data(), late.data());
  for (const float value : early) EXPECT_TRUE(std::isnan(value));
  for (const float value : late) EXPECT_EQ(value, 2.5f);
}

#if defined(SHERD_SIMT_TSAN)
__global__ void RaceKernel(int* to, bool ordered) {
  SIMT_SHARED(int, room, [64]);
  room[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (ordered) __syncthreads();
  to[blockIdx.x * 64 + threadIdx.x] = room[(threadIdx.x + 1) % 64];
}
__global__ void BlockRaceKernel(int* to) { *to += 1; }

TEST_F(ExecutorTest, RacesAreSeenAndNothingElse) {
  std::vector<int> values(3 * 64);
  const int before = SanitizerReports();
  Launch(SIMT_KERNEL(RaceKernel), 3, 64, 0, values.data(), true);
  EXPECT_EQ(SanitizerReports(), before) << "between threads that a barrier orders";
  Launch(SIMT_KERNEL(RaceKernel), 1, 64, 0, values.data(), false);
  const int of_threads = SanitizerReports();
  EXPECT_GT(of_threads, before);
  int count = 0;
  Launch(SIMT_KERNEL(BlockRaceKernel), 4, 1, 0, &count);
  EXPECT_GT(SanitizerReports(), of_threads);
}
#endif

#if defined(SHERD_SIMT_ASAN)
__global__ void OutOfBoundsKernel(float* to, int off) {
  SIMT_SHARED(float, room, [32]);
  SIMT_DYNAMIC_SHARED(float, dynamic);
  const int i = static_cast<int>(threadIdx.x);
  room[i + (off == 1 ? 1 : 0)] = 1;
  dynamic[i + (off == 2 ? 1 : 0)] = 1;
  to[i + (off == 3 ? 1 : 0)] = 1;
}

TEST_F(ExecutorTest, AccessesOutOfBoundsEndTheProcessWithTheirPlace) {
  std::vector<float> values(32);
  Launch(SIMT_KERNEL(OutOfBoundsKernel), 1, 32, 128, values.data(), 0);
  for (const int off : {1, 2, 3}) {
    EXPECT_DEATH(Launch(SIMT_KERNEL(OutOfBoundsKernel), 1, 32, 128, values.data(), off),
                 "in kernel OutOfBoundsKernel, block \\(0, 0, 0\\), thread \\(31, 0, 0\\)");
    EXPECT_DEATH(Launch(SIMT_KERNEL(OutOfBoundsKernel), 1, 32, 128, values.data(), off),
                 "executor_test.cc:");
  }
}
#endif

}  // namespace
}  // namespace sherd
