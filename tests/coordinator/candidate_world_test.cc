// What the workers of a job allow of its layout.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/trial_world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/cost_profiles.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

struct Machine {
  const char* host = "host";
  int64_t memory_bytes = 0;
  const char* device = "cpu:0";
};

// Of a world with a rank on each.
class Workers {
 public:
  explicit Workers(const std::vector<Machine>& machines) {
    for (const auto& [host, memory_bytes, device] : machines) {
      ids_.emplace_back(absl::StrCat("w", 10 + ids_.size()));
      v1::DurableEvent joined = Joined(ids_.back().value(), 1, host);
      joined.mutable_worker_joined()->set_memory_bytes(memory_bytes);
      joined.mutable_worker_joined()->set_device(device);
      scenario_.Do(joined);
    }
  }
  CandidateWorld world() const { return WorldOf(scenario_.state(), ids_); }
  double flops() const { return ProfileOf(scenario_.state(), ids_).flops; }

 private:
  Scenario scenario_;
  std::vector<WorkerId> ids_;
};

TEST(CandidateWorld, DegreesAreDivisorsOfTheWorldUpToSixteen) {
  EXPECT_THAT(Workers(std::vector<Machine>(6)).world().tensor_degrees, ElementsAre(1, 2, 3, 6));
  EXPECT_THAT(Workers(std::vector<Machine>(32)).world().tensor_degrees,
              ElementsAre(1, 2, 4, 8, 16));
  EXPECT_EQ(Workers(std::vector<Machine>(6)).world().ranks, 6);
}

TEST(CandidateWorld, NoTensorGroupReachesOverMemoryThatItDoesNotShare) {
  EXPECT_THAT(Workers({{"a"}, {"a"}, {"b"}, {"b"}}).world().tensor_degrees, ElementsAre(1, 2));
  EXPECT_THAT(Workers({{"a"}, {"b"}, {"b"}, {"a"}}).world().tensor_degrees, ElementsAre(1));
  EXPECT_THAT(Workers({{"a"}, {"a"}, {"a"}, {"b"}}).world().tensor_degrees, ElementsAre(1));
}

// F20
TEST(CandidateWorld, ProcessorsOfAHostShareItsMemoryAndTheTightestRankCounts) {
  EXPECT_EQ(Workers({{"a", 12 * kMiB}, {"a", 12 * kMiB}, {"a", 12 * kMiB}}).world().limits.device,
            4 * kMiB);
  EXPECT_EQ(Workers({{"a", 8 * kMiB}, {"a", 8 * kMiB}, {"b", 5 * kMiB}}).world().limits.device,
            4 * kMiB);
  EXPECT_EQ(Workers({{"a", 3 * kMiB}, {"b", 8 * kMiB}, {"b", 8 * kMiB}}).world().limits.device,
            3 * kMiB);
}

TEST(CandidateWorld, ADeviceHasItsMemoryToItself) {
  EXPECT_EQ(Workers({{"a", 8 * kMiB, "cuda:0"}, {"a", 8 * kMiB, "cuda:1"}}).world().limits.device,
            8 * kMiB);
}

TEST(CandidateWorld, MemoryOfWhichNobodySpeaksIsNoLimit) {
  EXPECT_FALSE(Workers(std::vector<Machine>(2)).world().limits.device.has_value());
  EXPECT_EQ(Workers({{"a", 0}, {"b", 7 * kMiB}}).world().limits.device, 7 * kMiB);
}

TEST(CandidateWorld, FiguresOfNoProbeAreThoseOfTheKindOfMachine) {
  EXPECT_EQ(Workers(std::vector<Machine>(1)).flops(), FindCostProfile("cpu")->flops);
  EXPECT_EQ(Workers(std::vector<Machine>{{"a", 0, "cuda:0"}}).flops(),
            FindCostProfile("h100")->flops);
}

}  // namespace
}  // namespace sherd
