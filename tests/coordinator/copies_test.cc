#include "coordinator/core/copies.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> HoldersOf(const JobRecord& job, int rank) {
  std::vector<std::string> names;
  for (const WorkerId& id : job.ranks.at(rank).holders) names.push_back(id.value());
  return names;
}

TEST(Copies, OnOneHostTheNextRanksStoreThem) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Submit({.min_workers = 3, .replicas = 2});
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("w1", "w2"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 2), ElementsAre("w0", "w1"));
  EXPECT_THAT(scenario.job(id).holders, IsEmpty());
}

// Copies are memory that the holder maps, too.
TEST(Copies, AreHeldWhereMemoryCanBeShared) {
  Scenario scenario;
  for (const char* worker : {"a0", "a1"}) scenario.Do(Joined(worker, 1, "a"));
  for (const char* worker : {"b0", "b1"}) scenario.Do(Joined(worker, 1, "b"));
  const JobId id = scenario.Submit({.min_workers = 4, .replicas = 3});
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("a1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 3), ElementsAre("b0"));
}

TEST(Copies, IdleWorkersComeAfterRanksAndAreRemembered) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Submit({.min_workers = 2, .max_workers = 2, .replicas = 2});
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("w1", "w2"));
  ASSERT_THAT(scenario.job(id).holders, SizeIs(1));
  EXPECT_EQ(scenario.job(id).holders[0].worker, WorkerId("w2"));
}

TEST(Copies, RanksThatHoldTheSameShardAnywayCount) {
  for (const bool ddp : {true, false}) {
    Scenario scenario;
    scenario.JoinWorkers(4);
    const JobId id("tiny-1");
    v1::DurableEvent submitted = Submitted(id, {.min_workers = 4, .replicas = 2});
    v1::ParallelSpec& parallel =
        *submitted.mutable_job_submitted()->mutable_spec()->mutable_parallel();
    parallel.set_strategy(ddp ? v1::STRATEGY_DDP : v1::STRATEGY_HYBRID);
    if (!ddp) parallel.set_shard_group(2);
    scenario.Do(submitted);
    // Under ddp three others hold it; of hybrid's two shard groups one other.
    EXPECT_THAT(scenario.job(id).ranks[0].holders, SizeIs(ddp ? 0 : 1));
    if (!ddp) {
      EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("w1"));
    }
  }
}

TEST(Copies, AProcessThatHoldsAShardForTwoRanksCountsOnce) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id("tiny-1");
  v1::DurableEvent submitted = Submitted(id, {.min_workers = 2, .max_workers = 2, .replicas = 2});
  submitted.mutable_job_submitted()->mutable_spec()->mutable_parallel()->set_strategy(
      v1::STRATEGY_DDP);
  scenario.Do(submitted);
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("w2"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("w2"));
  EXPECT_EQ(FewestCopies(scenario.job(id)), 2);
}

TEST(Copies, NoneAreMadeWhereNoneAreWanted) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Submit({.min_workers = 3, .replicas = 0});
  EXPECT_THAT(scenario.job(id).ranks[0].holders, IsEmpty());
}

TEST(Copies, FewerThanWantedAreAWarningAndHoldNobodyUp) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2, .replicas = 2});
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  std::string warnings;
  for (const v1::JobEvent& entry : scenario.Feed()) warnings += entry.warning().text();
  EXPECT_THAT(warnings, HasSubstr("asks for 2 copies of every shard beside its rank's own, and "
                                  "there are workers for 1"));
}

}  // namespace
}  // namespace sherd
