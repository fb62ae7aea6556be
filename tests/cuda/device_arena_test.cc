#include "kernels/cuda/device_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/simt/software_driver.h"

namespace sherd {
namespace {

using simt::SoftwareDriver;
using simt::SoftwareDriverOptions;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

std::function<absl::Status()> Nothing() {
  return [] { return absl::OkStatus(); };
}

TEST(DeviceArena, PiecesAreAlignedAndApart) {
  SoftwareDriver driver;
  DeviceArena arena(driver, Nothing());
  std::vector<std::byte*> pieces;
  for (const int64_t bytes : {1, 255, 256, 257, 1000}) {
    pieces.push_back(*arena.Take(Pool::kParams, bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces.back()) % 256, 0u);
  }
  EXPECT_EQ(pieces[1] - pieces[0], 256);
  EXPECT_EQ(pieces[4] - pieces[3], 512);
  EXPECT_EQ(arena.used_bytes(), 256 * (1 + 1 + 1 + 2 + 4));
  EXPECT_EQ(arena.held(Pool::kParams), arena.used_bytes());
  for (std::byte* const piece : pieces) arena.Give(piece);
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(DeviceArena, APlanThatWasReservedIsOneSlab) {
  SoftwareDriver driver;
  DeviceArena arena(driver, Nothing());
  EXPECT_TRUE(arena.Reserve(100 * kMiB).ok());
  EXPECT_EQ(arena.slab_bytes(), 100 * kMiB);
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 10; ++i) pieces.push_back(*arena.Take(Pool::kActivations, 10 * kMiB));
  EXPECT_EQ(arena.slab_bytes(), 100 * kMiB);
  for (std::byte* const piece : pieces) arena.Give(piece);
  // The next job is larger: what the one before left goes back first.
  EXPECT_TRUE(arena.Reserve(200 * kMiB).ok());
  EXPECT_EQ(arena.slab_bytes(), 200 * kMiB);
}

// F18: whatever jobs come, in whatever order their memory is given back, slabs stay as they are.
TEST(DeviceArena, DoesNotFragmentOverAThousandJobs) {
  SoftwareDriver driver;
  DeviceArena arena(driver, Nothing());
  std::mt19937 random(3);
  int64_t after_the_first = 0;
  for (int job = 0; job < 1000; ++job) {
    std::vector<std::byte*> pieces;
    // Unlike sizes, of 40 MiB at most together.
    for (int i = 0; i < 40; ++i) {
      pieces.push_back(*arena.Take(static_cast<Pool>(i % kPools), 1 + random() % kMiB));
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (std::byte* const piece : pieces) arena.Give(piece);
    ASSERT_EQ(arena.used_bytes(), 0);
    if (job == 0) after_the_first = arena.slab_bytes();
  }
  EXPECT_EQ(arena.slab_bytes(), after_the_first);
  // All that was given back is one range again.
  EXPECT_TRUE(arena.Reserve(32 * kMiB).ok());
  EXPECT_EQ(arena.slab_bytes(), after_the_first);
}

// F19
TEST(DeviceArena, OutOfMemoryNamesThePoolTheRequestAndTheLargestHolders) {
  SoftwareDriver driver({.memory_bytes = 100 * kMiB});
  DeviceArena arena(driver, Nothing());
  std::vector<std::byte*> pieces = {*arena.Take(Pool::kActivations, 40 * kMiB),
                                    *arena.Take(Pool::kOptimizer, 33 * kMiB),
                                    *arena.Take(Pool::kParams, 3 * kMiB)};
  pieces.push_back(*arena.Take(Pool::kGrads, 2 * kMiB));
  const absl::Status error = arena.Take(Pool::kGathered, 50 * kMiB).status();
  EXPECT_TRUE(absl::IsResourceExhausted(error)) << error;
  EXPECT_THAT(std::string(error.message()), HasSubstr("50.0 MiB for gathered cannot be had"));
  EXPECT_THAT(std::string(error.message()), HasSubstr("of 100.0 MiB"));
  EXPECT_THAT(std::string(error.message()),
              HasSubstr("it holds most for activations (40.0 MiB), optimizer (33.0 MiB), params "
                        "(3.0 MiB)"));
  for (std::byte* const piece : pieces) arena.Give(piece);
  // What is given back serves.
  std::byte* const piece = *arena.Take(Pool::kGathered, 50 * kMiB);
  arena.Give(piece);
}

TEST(DeviceArena, ReturnsEverySlabAndOnlyWhenTheDeviceIsQuiet) {
  auto holdings = std::make_shared<simt::SoftwareHoldings>();
  SoftwareDriver driver({.holdings = holdings});
  int quiet = 0;
  {
    DeviceArena arena(driver, [&quiet] {
      ++quiet;
      return absl::OkStatus();
    });
    arena.Give(*arena.Take(Pool::kParams, kMiB));
    EXPECT_GT(holdings->memory_bytes, 0);
    EXPECT_EQ(quiet, 0);
  }
  EXPECT_EQ(quiet, 1);
  EXPECT_EQ(holdings->memory_bytes, 0);
}

}  // namespace
}  // namespace sherd
