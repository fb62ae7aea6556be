// Links between ranks and the processes that store their shards, which break while both live.

#include <string>
#include <vector>

#include "coordinator/core/assignment.h"
#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/job_spec.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> HoldersOf(const JobRecord& job, int rank) {
  std::vector<std::string> names;
  for (const WorkerId& id : job.ranks.at(rank).holders) names.push_back(id.value());
  return names;
}

std::vector<std::string> Excluded(const JobRecord& job) {
  std::vector<std::string> names;
  for (const WorkerId& id : job.excluded) names.push_back(id.value());
  return names;
}

// One rank on a, the holder is b; others are idle.
JobId RunOne(Scenario& scenario, const std::string& hosts) {
  scenario.JoinHosts(hosts);
  const JobId id = scenario.Run({.max_workers = 1});
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("a"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("b"));
  return id;
}

void Break(Scenario& scenario, const JobId& id, const std::string& host) {
  scenario.Do(Unreached(scenario.job(id), 0, "tcp:" + host + ":1"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.ReleaseAll(id, 0);
}

TEST(HolderLinks, AnotherHoldsTheShardAndNobodyIsExcluded) {
  Scenario scenario;
  const JobId id = RunOne(scenario, "abc");
  Break(scenario, id, "b");
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("(worker b)"));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("a"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("c"));
  EXPECT_THAT(Excluded(scenario.job(id)), IsEmpty());
  EXPECT_THAT(scenario.Feed().front().log().text(), HasSubstr("the link between a and b broke"));
}

TEST(HolderLinks, WithoutAnotherThereAreFewerCopies) {
  Scenario scenario;
  const JobId id = RunOne(scenario, "ab");
  Break(scenario, id, "b");
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), IsEmpty());
}

// Three epochs in a row without a step would end the job.
TEST(HolderLinks, WhoLosesTheSecondIsItselfTheCause) {
  Scenario scenario;
  const JobId id = RunOne(scenario, "abcd");
  Break(scenario, id, "b");
  Break(scenario, id, "c");
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(Excluded(scenario.job(id)), ElementsAre("a"));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("b"));
}

TEST(HolderLinks, AHolderThatTwoRanksLoseIsTheCause) {
  Scenario scenario;
  scenario.JoinHosts("abc");
  const JobId id = scenario.Run({.min_workers = 2, .max_workers = 2, .replicas = 2});
  ASSERT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("b", "c"));
  const JobRecord before = scenario.job(id);
  scenario.Do(Unreached(before, 0, "tcp:c:1"));
  // It had to end with rank 0, and says so before it is known why that one did.
  scenario.Do(Failed(before, 1, "rank 0 closed its link", 0, /*lost_peer=*/0));
  scenario.ReleaseAll(id, 0);
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(Excluded(scenario.job(id)), IsEmpty());
  EXPECT_THAT(HoldersOf(scenario.job(id), 0), ElementsAre("b"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("a", "c"));
  scenario.Do(Unreached(scenario.job(id), 1, "tcp:c:1"));
  scenario.ReleaseAll(id, 0);
  EXPECT_THAT(Excluded(scenario.job(id)), ElementsAre("c"));
  EXPECT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("a"));
}

TEST(HolderLinks, TheRankThatItsPeersBlameMayStillSayWhy) {
  Scenario scenario;
  scenario.JoinHosts("abc");
  const JobId id = scenario.Run({.min_workers = 2, .max_workers = 2, .replicas = 2});
  const JobRecord before = scenario.job(id);
  scenario.Do(Failed(before, 0, "rank 1 closed its link", 0, /*lost_peer=*/1));
  scenario.Do(Unreached(before, 1, "tcp:c:1"));
  scenario.ReleaseAll(id, 0);
  EXPECT_THAT(Excluded(scenario.job(id)), IsEmpty());
  EXPECT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("a"));
}

// Reports of different workers come in any order.
TEST(HolderLinks, WhoBlamesTheRankMayBeHeardAfterIt) {
  Scenario scenario;
  scenario.JoinHosts("abc");
  const JobId id = scenario.Run({.min_workers = 3, .max_workers = 3});
  ASSERT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("c"));
  const JobRecord before = scenario.job(id);
  scenario.Do(Failed(before, 0, "rank 2 closed its link", 0, /*lost_peer=*/2));
  scenario.Do(Unreached(before, 1, "tcp:c:1"));
  scenario.Do(Failed(before, 2, "rank 1 closed its link", 0, /*lost_peer=*/1));
  scenario.ReleaseAll(id, 0);
  EXPECT_TRUE(scenario.job(id).broken.contains({WorkerId("b"), WorkerId("c")}));
  EXPECT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("a"));
}

// It may have failed for that alone: because it had been told to write nothing any more.
TEST(HolderLinks, ARankThatFailsByItselfLaterHidesNoBrokenLink) {
  for (const bool holder_fails : {false, true}) {
    Scenario scenario;
    scenario.JoinHosts("abc");
    const JobId id = scenario.Run({.min_workers = 3, .max_workers = 3});
    ASSERT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("c"));
    const JobRecord before = scenario.job(id);
    scenario.Do(Unreached(before, 1, "tcp:c:1"));
    scenario.Do(Failed(before, holder_fails ? 2 : 0, "the disk is full", 0));
    scenario.Do(Failed(before, holder_fails ? 0 : 2, "rank 1 closed its link", 0, /*lost_peer=*/1));
    scenario.ReleaseAll(id, 0);
    EXPECT_THAT(scenario.job(id).past_causes.back(), HasSubstr("the disk is full"));
    EXPECT_EQ(scenario.job(id).broken.contains({WorkerId("b"), WorkerId("c")}), !holder_fails);
    EXPECT_THAT(scenario.job(id).excluded, IsEmpty());
  }
}

// Before the last rank is released.
TEST(HolderLinks, AnotherProcessInTheHoldersPlaceDoesNotHideItsDeath) {
  for (const bool dies : {false, true}) {
    Scenario scenario;
    scenario.JoinHosts("abc");
    const JobId id = scenario.Run({.min_workers = 2, .max_workers = 2, .replicas = 2});
    ASSERT_THAT(HoldersOf(scenario.job(id), 1), ElementsAre("a", "c"));
    const JobRecord before = scenario.job(id);
    scenario.Do(Unreached(before, 1, "tcp:c:1"));
    scenario.Do(Failed(before, 0, "the disk is full", 0));
    if (dies) {
      scenario.Do(Lost("c", 1, "killed by signal 9 (SIGKILL)"));
      scenario.Do(Joined("c", 2, "c"));
    }
    scenario.ReleaseAll(id, 0);
    EXPECT_EQ(scenario.job(id).broken.contains({WorkerId("b"), WorkerId("c")}), !dies);
  }
}

TEST(HolderLinks, WhatIsLostBehindARanksOwnFailureIsNoComplaint) {
  Scenario scenario;
  scenario.JoinHosts("abc");
  const JobId id = scenario.Run({.min_workers = 3, .max_workers = 3});
  const JobRecord before = scenario.job(id);
  scenario.Do(Failed(before, 0, "the disk is full", 0));
  scenario.Do(Unreached(before, 1, "tcp:c:1"));
  scenario.ReleaseAll(id, 0);
  EXPECT_THAT(scenario.job(id).broken, IsEmpty());
}

// A holder closes its links when it hears of the epoch's end, which may be before the rank does.
TEST(HolderLinks, WhatBreaksBehindTheEndOfTheEpochIsNoComplaint) {
  Scenario scenario;
  scenario.JoinHosts("abcd");
  const JobId id = scenario.Run({.min_workers = 3, .max_workers = 3, .replicas = 3});
  const JobRecord before = scenario.job(id);
  scenario.Do(Failed(before, 0, "rank 1 closed its link", 0, /*lost_peer=*/1));
  scenario.Do(Unreached(before, 2, "tcp:d:1"));
  EXPECT_TRUE(scenario.job(id).suspicion);
  scenario.ReleaseAll(id, 0);
  EXPECT_TRUE(scenario.job(id).broken.empty());
  EXPECT_THAT(Excluded(scenario.job(id)), ElementsAre("b"));
}

TEST(HolderLinks, TheHoldersDeathExplainsIt) {
  Scenario scenario;
  const JobId id = RunOne(scenario, "abc");
  scenario.Do(Unreached(scenario.job(id), 0, "tcp:b:1"));
  scenario.Do(Lost("b", 1, "killed by signal 9 (SIGKILL)"));
  scenario.ReleaseAll(id, 0);
  EXPECT_TRUE(scenario.job(id).broken.empty());
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("SIGKILL"));
}

TEST(HolderLinks, AnAddressThatNobodyNamedIsAFailureOfTheRank) {
  Scenario scenario;
  const JobId id = RunOne(scenario, "abc");
  scenario.Do(Unreached(scenario.job(id), 0, "tcp:x:1"));
  EXPECT_FALSE(scenario.job(id).suspicion);
  EXPECT_EQ(scenario.job(id).end_kind, EndKind::kFailure);
}

TEST(HolderLinks, WhoWasNotReachedIsReadFromLast) {
  Scenario scenario;
  const JobId id = RunOne(scenario, "abc");
  JobRecord job = scenario.job(id);
  job.spec.mutable_model()->set_preset("gpt2-124m");
  job.spec = NormalizeJobSpec(job.spec);
  job.restore.version = Version{1, 1, 5};
  job.restore.step = 5;
  for (const char* holder : {"b", "c"}) {
    job.restore.parts[0].push_back({0, WorkerId(holder), Incarnation(1)});
  }
  AssignmentBuilder builder;
  const auto source = [&] {
    return builder.Build(scenario.state(), job, 0, {}).restore().sources(0).address();
  };
  EXPECT_EQ(source(), "tcp:b:1");
  job.broken.insert({WorkerId("a"), WorkerId("b")});
  EXPECT_EQ(source(), "tcp:c:1");
  // Better than nobody.
  job.restore.parts[0].pop_back();
  EXPECT_EQ(source(), "tcp:b:1");
}

}  // namespace
}  // namespace sherd
