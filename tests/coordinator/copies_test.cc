#include "coordinator/core/copies.h"

#include <algorithm>
#include <string>
#include <variant>
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

void JoinTwoHosts(Scenario& scenario, bool reachable = true) {
  for (const char* worker : {"a0", "a1", "b0", "b1"}) {
    v1::DurableEvent event = Joined(worker, 1, std::string(1, worker[0]));
    if (!reachable) event.mutable_worker_joined()->clear_network_address();
    scenario.Do(std::move(event));
  }
}

TEST(Copies, WorkersOfOtherHostsStoreThemFirst) {
  Scenario scenario;
  JoinTwoHosts(scenario);
  const JobId id = scenario.Submit({.min_workers = 4, .replicas = 3});
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("b0", "b1", "a1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 3), ElementsAre("a0", "a1", "b0"));
}

TEST(Copies, TheRanksOfAHostAreNotAllStoredByOne) {
  Scenario scenario;
  JoinTwoHosts(scenario);
  const JobId id = scenario.Submit({.min_workers = 4});
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("b0"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("b1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 2), ElementsAre("a0"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 3), ElementsAre("a1"));
}

TEST(Copies, IdleWorkersOfOtherHostsComeBeforeRanksOfTheSame) {
  Scenario scenario;
  JoinTwoHosts(scenario);
  const JobId id = scenario.Submit({.min_workers = 2, .max_workers = 2, .replicas = 3});
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("b0", "b1", "a1"));
  EXPECT_THAT(scenario.job(id).holders, SizeIs(2));
}

// Without an address only those come to a worker that share memory with it.
TEST(Copies, AreHeldWhereTheyCanBeBrought) {
  Scenario scenario;
  JoinTwoHosts(scenario, /*reachable=*/false);
  const JobId id = scenario.Submit({.min_workers = 2, .replicas = 3});
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("a1"));
}

TEST(Copies, WhoStoresForAnotherHostIsToldBeforeTheRanksAre) {
  Scenario scenario;
  JoinTwoHosts(scenario);
  const JobId id = scenario.Submit({.min_workers = 3, .max_workers = 3, .replicas = 2});
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("a0", "a1", "b0"));
  const std::vector<SendHold> holds = scenario.ActionsOf<SendHold>();
  ASSERT_THAT(holds, SizeIs(4));
  EXPECT_EQ(holds[0].worker, WorkerId("a0"));
  EXPECT_THAT(holds[0].owners, ElementsAre(2));
  EXPECT_EQ(holds[2].worker, WorkerId("b0"));
  EXPECT_THAT(holds[2].owners, ElementsAre(0, 1));
  EXPECT_EQ(holds[3].worker, WorkerId("b1"));
  EXPECT_THAT(holds[3].owners, ElementsAre(0, 1));
  EXPECT_EQ(holds[3].epoch, Epoch(1));
  size_t last_hold = 0;
  size_t first_assign = scenario.actions().size();
  for (size_t index = 0; index < scenario.actions().size(); ++index) {
    if (std::holds_alternative<SendHold>(scenario.actions()[index])) last_hold = index;
    if (std::holds_alternative<SendAssign>(scenario.actions()[index])) {
      first_assign = std::min(first_assign, index);
    }
  }
  EXPECT_LT(last_hold, first_assign);
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
