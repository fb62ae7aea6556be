#include "worker/train/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 8;

int64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

v1::RankLedger Ledger(int64_t own, int64_t stored_for) {
  v1::RankLedger ledger;
  (*ledger.mutable_memory())["params"].set_predicted(own);
  (*ledger.mutable_memory())["replicas"].set_predicted(stored_for);
  (*ledger.mutable_memory())["peak"].set_predicted(own + stored_for);
  return ledger;
}

TEST(HostMemory, WhatOneRankStoresForOtherHostsCountsOnce) {
  const int64_t available = AvailableBytes();
  ASSERT_GT(available, 0);
  const int64_t own = available / 40;
  const int64_t stored = available / 4;
  // 8/40 + 1/4 of it.
  EXPECT_TRUE(CheckHostMemory(Ledger(own, stored).memory(), stored, kRanks).ok());
  // What every rank takes counts for each.
  EXPECT_FALSE(CheckHostMemory(Ledger(own, stored).memory(), 0, kRanks).ok());
}

TEST(HostMemory, ARefusalNamesBoth) {
  const int64_t available = AvailableBytes();
  const std::string refusal(
      CheckHostMemory(Ledger(available / 16, 2 * available).memory(), 2 * available, kRanks)
          .message());
  EXPECT_THAT(refusal, AllOf(HasSubstr(" beside "), HasSubstr("GiB for ranks on other hosts"),
                             HasSubstr("8 of them share this host")));
  EXPECT_FALSE(
      CheckHostMemory(Ledger(available, available / 4).memory(), available / 4, kRanks).ok());
}

TEST(HostMemory, NoProductOverflows) {
  EXPECT_FALSE(
      CheckHostMemory(Ledger(INT64_MAX / 2, INT64_MAX / 4).memory(), INT64_MAX / 4, kRanks).ok());
}

}  // namespace
}  // namespace sherd
