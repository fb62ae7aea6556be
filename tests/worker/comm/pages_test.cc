#include "worker/comm/pages.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <limits>
#include <thread>

namespace sherd {
namespace {

// What is about to be taken is not free any more, whoever looks.
TEST(PageBudget, SetsApartWhatIsNotTakenYet) {
  int64_t available = 100;
  PageBudget budget([&] { return available; });
  ASSERT_TRUE(budget.Reserve(60).ok());
  absl::Status second;
  std::thread other([&] { second = budget.Reserve(41); });
  other.join();
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(second.message(), "100 bytes are available, of which 60 are being taken");
  EXPECT_TRUE(budget.Reserve(40).ok());
  budget.Taken(40);
  // In use, and so counted by the machine.
  available -= 60;
  budget.Taken(60);
  EXPECT_FALSE(budget.Reserve(41).ok());
  EXPECT_TRUE(budget.Reserve(40).ok());
}

TEST(PageBudget, NeverGivesTwoThreadsTheSameMemory) {
  constexpr int64_t kMachine = 100;
  std::atomic<int64_t> available{kMachine};
  std::atomic<int64_t> lowest{kMachine};
  PageBudget budget([&] { return available.load(); });
  const auto take_and_return = [&] {
    for (int round = 0; round < 20'000; ++round) {
      if (!budget.Reserve(60).ok()) continue;
      for (int piece = 0; piece < 3; ++piece) {
        const int64_t left = available -= 20;
        if (left < 0) lowest = left;
        budget.Taken(20);
      }
      available += 60;
    }
  };
  std::thread other(take_and_return);
  take_and_return();
  other.join();
  EXPECT_EQ(lowest, kMachine);
  EXPECT_EQ(available, kMachine);
}

TEST(NewPages, TakesWhatItHasReservedAndNoMore) {
  int64_t available = 3 * kPageBytes;
  PageBudget budget([&] { return available; });
  EXPECT_EQ(NewPages(3 * kPageBytes, 1, budget).status().code(),
            absl::StatusCode::kResourceExhausted);
  // Whatever became of it, nothing stays reserved.
  EXPECT_FALSE(NewPages(std::numeric_limits<int64_t>::max(), 1, budget).ok());
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<FileDescriptor> pages = NewPages(2 * kPageBytes, 1, budget);
    ASSERT_TRUE(pages.ok()) << pages.status();
    struct stat file = {};
    ASSERT_EQ(::fstat(pages->get(), &file), 0);
    EXPECT_EQ(file.st_size, 3 * kPageBytes);
    EXPECT_EQ(file.st_blocks * 512, 3 * kPageBytes);
  }
  EXPECT_TRUE(budget.Reserve(available).ok());
}

}  // namespace
}  // namespace sherd
