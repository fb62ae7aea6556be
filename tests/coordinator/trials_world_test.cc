// A job of strategy auto whose world changes.

#include <string>
#include <vector>

#include "coordinator/core/trials.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/candidates.h"
#include "plan/holdings.h"
#include "tests/coordinator/trial_scenario.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr auto kReady = v1::RankChanged::MILESTONE_READY;

using Phase = Trials::Phase;

// Trains, commits `step`, and loses a worker for good.
void LoseOneAfter(Scenario& scenario, const JobId& id, const std::string& worker, int64_t step) {
  scenario.ReportAll(id, kReady);
  scenario.Do(Progressed(scenario.job(id), step));
  scenario.Do(Lost(worker, 1, "killed by signal 9 (SIGKILL)", step));
  scenario.ReleaseAll(id, step);
}

TEST(Trials, AWorldOfAnotherSizeIsDecidedAnewAtOnce) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  const v1::StrategyDecision first = MeasureToTheEnd(scenario, id, {0.5, 0.1});
  LoseOneAfter(scenario, id, "w3", 5);
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_FORMING);
  ASSERT_THAT(job.ranks, SizeIs(3));
  const auto decision = DecisionIn(scenario.Feed());
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->world(), 3);
  EXPECT_THAT(decision->reason(), HasSubstr("another size"));
  // Training goes on after what was committed, under the new layout, with the same batches.
  EXPECT_FALSE(AssignmentOf(scenario, id, 0).has_trial());
  EXPECT_EQ(job.restore.step, 5);
  EXPECT_EQ(job.spec.parallel().DebugString(), decision->chosen().parallel().DebugString());
  EXPECT_EQ(decision->chosen().micro_batch(), first.chosen().micro_batch());
  EXPECT_EQ(decision->chosen().parallel().tensor(), first.chosen().parallel().tensor());
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

TEST(Trials, AWorldOfTheSameSizeKeepsItsLayout) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  const v1::StrategyDecision first = MeasureToTheEnd(scenario, id, {0.5, 0.1});
  scenario.Do(Joined("w4", 1));
  LoseOneAfter(scenario, id, "w3", 5);
  ASSERT_THAT(scenario.job(id).ranks, SizeIs(4));
  EXPECT_FALSE(DecisionIn(scenario.Feed()));
  EXPECT_EQ(scenario.job(id).spec.parallel().DebugString(),
            first.chosen().parallel().DebugString());
}

// The version of the old world is cut as that was: every rank gets all it needs of it.
TEST(Trials, AVersionOfAnotherLayoutIsReadAsItWasCut) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  // Strategies are tried in the order of the list: the first that cuts its state is made fastest.
  while (IsUndecided(scenario.job(id))) {
    const bool probes = scenario.job(id).trials.phase == Phase::kProbe;
    const bool cut = !probes && Tried(scenario.job(id)).parallel().strategy() != v1::STRATEGY_DDP &&
                     Tried(scenario.job(id)).parallel().tensor() == 1;
    scenario.MeasureAll(id, cut ? 0.1 : 10);
  }
  const v1::ParallelSpec before = scenario.job(id).spec.parallel();
  LoseOneAfter(scenario, id, "w1", 5);
  const JobRecord& job = scenario.job(id);
  ASSERT_TRUE(job.restore.version);
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    const v1::RestorePlan plan = AssignmentOf(scenario, id, rank).restore();
    EXPECT_EQ(plan.parallel().DebugString(), before.DebugString());
    const std::vector<int> parts =
        SourceParts(before, job.spec, 4, static_cast<int>(job.ranks.size()), rank);
    EXPECT_EQ(plan.sources_size(), std::ssize(parts));
    EXPECT_THAT(parts, Not(IsEmpty()));
  }
}

// Shard groups are chosen for the world, so they do not bind it.
TEST(Trials, HybridLeavesEveryWorldOpen) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  while (IsUndecided(scenario.job(id))) {
    const bool hybrid = scenario.job(id).trials.phase == Phase::kTrial &&
                        Tried(scenario.job(id)).parallel().strategy() == v1::STRATEGY_HYBRID;
    scenario.MeasureAll(id, hybrid ? 0.01 : 10);
  }
  ASSERT_EQ(scenario.job(id).spec.parallel().strategy(), v1::STRATEGY_HYBRID)
      << "it was not among those that were tried";
  LoseOneAfter(scenario, id, "w3", 5);
  EXPECT_THAT(scenario.job(id).ranks, SizeIs(3));
}

}  // namespace
}  // namespace sherd
