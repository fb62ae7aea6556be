#include "kernels/memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <vector>

namespace sherd {
namespace {

TEST(Buffer, IsAlignedAndZeroed) {
  MemoryMeter meter;
  for (const int64_t bytes : {1, 63, 64, 4097, (1 << 20) - 1, 1 << 20, (3 << 20) + 5}) {
    Buffer buffer(meter, Pool::kStaging, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    int64_t nonzero = 0;
    for (int64_t i = 0; i < bytes; ++i) {
      nonzero += buffer.data()[i] != std::byte{0};
      buffer.data()[i] = std::byte{0xff};
    }
    EXPECT_EQ(nonzero, 0) << bytes;
  }
}

TEST(Buffer, OfNoBytesIsNoMemory) {
  MemoryMeter meter;
  const Buffer buffer(meter, Pool::kComm, 0);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(meter.peak_total(), 0);
}

TEST(Buffer, MovesItsMemoryAndCountsItOnce) {
  MemoryMeter meter;
  Buffer a(meter, Pool::kGrads, 1000);
  std::byte* const data = a.data();
  Buffer b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);
  b = Buffer(meter, Pool::kParams, 10);
  EXPECT_EQ(meter.current(Pool::kGrads), 0);
  EXPECT_EQ(meter.current(Pool::kParams), 10);
  b = Buffer();
  EXPECT_EQ(meter.current(Pool::kParams), 0);
}

TEST(MemoryMeter, KeepsThePeakOfEachPoolAndOfTheirSum) {
  MemoryMeter meter;
  {
    const Buffer first(meter, Pool::kGathered, 300);
    const Buffer second(meter, Pool::kActivations, 200);
  }
  const Buffer third(meter, Pool::kGathered, 400);
  EXPECT_EQ(meter.current(Pool::kGathered), 400);
  EXPECT_EQ(meter.peak(Pool::kGathered), 400);
  EXPECT_EQ(meter.peak(Pool::kActivations), 200);
  EXPECT_EQ(meter.peak_total(), 500);
}

TEST(MemoryMeter, CountsFromManyThreads) {
  MemoryMeter meter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&meter] {
      for (int i = 0; i < 200; ++i) const Buffer buffer(meter, Pool::kComm, 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(meter.current(Pool::kComm), 0);
  EXPECT_GE(meter.peak(Pool::kComm), 7);
  EXPECT_LE(meter.peak(Pool::kComm), 28);
}

int64_t MappedPages() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

// F18: what a large buffer held goes back to the operating system when it is freed.
TEST(Buffer, ReturnsLargeMemoryToTheSystem) {
  MemoryMeter meter;
  const int64_t before = MappedPages();
  {
    const Buffer buffer(meter, Pool::kGathered, 64 << 20);
    EXPECT_GE(MappedPages() - before, (64 << 20) / 4096);
  }
  EXPECT_LT(MappedPages() - before, 1000);
}

TEST(Pool, NamesAreTheLedgersLines) {
  EXPECT_STREQ(NameOf(Pool::kParams), "params");
  EXPECT_STREQ(NameOf(Pool::kAccumulators), "accumulators");
  EXPECT_STREQ(NameOf(Pool::kStaging), "staging");
  EXPECT_STREQ(NameOf(Pool::kScratch), "scratch");
  EXPECT_STREQ(NameOf(Pool::kReplicas), "replicas");
}

}  // namespace
}  // namespace sherd
