#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "tests/simulation/schedule.h"

namespace sherd::simulation {
namespace {

using std::chrono::steady_clock;

constexpr auto kBudget = std::chrono::seconds(20);
constexpr int64_t kSchedules = 15'000;
// Enough for each planted fault.
constexpr int64_t kMostForAFault = 5'000;

class SimulationTest : public testing::Test {
 protected:
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  CoordinatorMetrics metrics_{*registry_};
};

// SHERD_SIMULATION_SEED, or another range every day: over time, all are seen.
uint64_t FirstSeed() {
  uint64_t seed = 0;
  const char* chosen = std::getenv("SHERD_SIMULATION_SEED");
  if (chosen != nullptr && absl::SimpleAtoi(chosen, &seed)) return seed;
  const auto days = std::chrono::duration_cast<std::chrono::hours>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count() /
                    24;
  return static_cast<uint64_t>(days * kSchedules);
}

TEST_F(SimulationTest, NoScheduleBreaksARule) {
  const steady_clock::time_point end = steady_clock::now() + kBudget;
  const uint64_t first = FirstSeed();
  int64_t count = 0;
  for (; count < kSchedules && steady_clock::now() < end; ++count) {
    Options options{.seed = first + static_cast<uint64_t>(count)};
    const Outcome outcome = RunSchedule(options, metrics_);
    if (!outcome.wrong) continue;
    options.trace = true;
    FAIL() << "seed " << options.seed << ": " << *outcome.wrong << "\n"
           << absl::StrJoin(RunSchedule(options, metrics_).trace, "\n")
           << "\nagain: SHERD_SIMULATION_SEED=" << options.seed;
  }
  std::cout << count << " schedules from seed " << first << " on\n";
}

TEST_F(SimulationTest, ASeedGivesOneSchedule) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Options options{.seed = seed, .trace = true};
    EXPECT_EQ(RunSchedule(options, metrics_).trace, RunSchedule(options, metrics_).trace);
  }
}

class PlantedFaultTest : public SimulationTest, public testing::WithParamInterface<Planted> {};

TEST_P(PlantedFaultTest, IsFound) {
  for (int64_t index = 0; index < kMostForAFault; ++index) {
    const Options options{.seed = static_cast<uint64_t>(index), .planted = GetParam()};
    const Outcome outcome = RunSchedule(options, metrics_);
    if (!outcome.wrong) continue;
    std::cout << "seed " << index << ": " << *outcome.wrong << "\n";
    return;
  }
  FAIL() << "none of " << kMostForAFault << " schedules shows it";
}

INSTANTIATE_TEST_SUITE_P(, PlantedFaultTest,
                         testing::Values(Planted::kNoFences, Planted::kEarlyExchange,
                                         Planted::kLostBatch, Planted::kForgottenRank));

}  // namespace
}  // namespace sherd::simulation
