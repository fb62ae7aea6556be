// Epochs that end by plan, and workers that take no part any more (docs/adr/0009).

#include <string>
#include <vector>

#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> Paused(const Scenario& scenario) {
  std::vector<std::string> workers;
  for (const SendPause& pause : scenario.ActionsOf<SendPause>()) {
    workers.push_back(pause.worker.value());
  }
  return workers;
}

std::vector<std::string> Dismissed(const Scenario& scenario) {
  std::vector<std::string> workers;
  for (const SendShutdown& shutdown : scenario.ActionsOf<SendShutdown>()) {
    workers.push_back(shutdown.worker.value());
  }
  return workers;
}

// A job of `world` ranks that has completed step 5.
JobId RunRanks(Scenario& scenario, int world, int64_t max_workers, int64_t min_workers = 1) {
  scenario.JoinWorkers(world);
  const JobId id = scenario.Run({.min_workers = min_workers, .max_workers = max_workers});
  scenario.Do(Progressed(scenario.job(id), 5));
  return id;
}

TEST(Growth, ARunningJobMovesToALargerWorldWhenAWorkerComes) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/4);
  scenario.Do(Joined("w2", 1));
  EXPECT_THAT(Paused(scenario), ElementsAre("w0", "w1"));
  EXPECT_THAT(scenario.ActionsOf<StartPauseTimer>(), SizeIs(1));
  EXPECT_THAT(scenario.Aborted(), IsEmpty());
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(scenario.job(id).reason, "the world grows from 2 to 3 workers");
  scenario.ReleaseAll(id, 9);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1", "w2"));
  EXPECT_EQ(scenario.job(id).restore.step, 9);
  EXPECT_EQ(scenario.job(id).fruitless, 0);
}

v1::Holding Held(int64_t epoch, int world, int owner, int64_t step) {
  v1::Holding held;
  held.set_epoch(epoch);
  held.set_world(world);
  held.set_owner(owner);
  held.set_step(step);
  return held;
}

// Ranks train before the coordinator has heard that all of them are ready: what they committed then
// is not outvoted by the older version, of which there are more copies (docs/protocol-model.md).
TEST(Growth, StepsOfAnEpochThatWasNeverHeardToRunAreNotLost) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/3);
  scenario.Do(Joined("w2", 1));
  scenario.ReleaseAll(id, 9);
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  scenario.Do(Lost("w2", 1, "killed by signal 9 (SIGKILL)"));
  // Each survivor holds all of step 9, and of step 12 its own shard and that of the rank before.
  for (const int rank : {0, 1}) {
    v1::DurableEvent event = Changed(scenario.job(id), rank, kReleased);
    auto& holdings = *event.mutable_rank_changed()->mutable_holdings();
    for (const int owner : {0, 1}) *holdings.Add() = Held(1, 2, owner, 9);
    for (const int owner : {rank, (rank + 2) % 3}) *holdings.Add() = Held(2, 3, owner, 12);
    scenario.Do(std::move(event));
  }
  EXPECT_EQ(scenario.job(id).restore.step, 12);
}

TEST(Growth, AJobAsLargeAsItMayBeStaysAsItIs) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/2);
  scenario.Do(Joined("w2", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(Growth, WorkersThatMakeNoAllowedWorldLargerChangeNothing) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Run({.tensor = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  scenario.Do(Joined("w2", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Joined("w3", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
}

TEST(Growth, QueuedJobsGoFirst) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/0);
  const JobId queued = scenario.Submit({.name = "queued", .min_workers = 2});
  scenario.Do(Joined("w2", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Joined("w3", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(scenario.WorkersOf(queued), ElementsAre("w2", "w3"));
}

TEST(Growth, AnEpochThatHasNotTrainedAStepIsLeftAlone) {
  Scenario scenario;
  scenario.JoinWorkers(1);
  const JobId id = scenario.Run({});
  scenario.Do(Joined("w1", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Progressed(scenario.job(id), 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
}

TEST(Growth, ADeathMeanwhileIsTheReason) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/4);
  scenario.Do(Joined("w2", 1));
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 7));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w1"));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("SIGKILL"));
  scenario.ReleaseAll(id, 7);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w2", "w1"));
}

TEST(Growth, RanksThatDoNotStopAreAborted) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/4);
  scenario.Do(Joined("w2", 1));
  scenario.Do(Hung(scenario.job(id), -1, "the ranks did not stop within 30s", 30'000));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0", "w1"));
  EXPECT_EQ(scenario.job(id).reason, "the ranks did not stop within 30s");
}

TEST(Hang, EndsTheEpochWithTheVerdict) {  // F34
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/2);
  scenario.Do(Hung(scenario.job(id), 1, "rank 1 on worker w1 hangs", 30'000));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(scenario.job(id).reason, "rank 1 on worker w1 hangs");
  EXPECT_EQ(scenario.job(id).times.ended - scenario.job(id).times.struck, 30'000);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0", "w1"));
}

TEST(Drain, ASpareTakesTheRankAndTheWorkerIsLetGoWhenTheNextEpochRuns) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/2);
  scenario.Do(Joined("w2", 1));
  scenario.Do(Drained("w0"));
  EXPECT_THAT(Paused(scenario), ElementsAre("w0", "w1"));
  EXPECT_EQ(scenario.job(id).reason, "worker w0 leaves: drained by a user");
  scenario.ReleaseAll(id, 9);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w2", "w1"));
  // The new ranks read from it.
  EXPECT_THAT(Dismissed(scenario), IsEmpty());
  scenario.ReportAll(id, kReady);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Dismissed(scenario), ElementsAre("w0"));
  scenario.Do(Drained("w0"));
  EXPECT_THAT(scenario.actions(), IsEmpty());
}

TEST(Drain, AnIdleWorkerIsLetGoAtOnceAndTakesNoJob) {
  Scenario scenario;
  scenario.JoinWorkers(1);
  scenario.Do(Drained("w0"));
  EXPECT_THAT(Dismissed(scenario), ElementsAre("w0"));
  const JobId id = scenario.Submit();
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_QUEUED);
  scenario.Do(Lost("w0", 1, "its process exited with code 0"));
  scenario.Do(Joined("w0", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
}

TEST(Drain, AWorkerThatOnlyStoresCopiesIsReplaced) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.max_workers = 1});
  scenario.Do(Progressed(scenario.job(id), 5));
  ASSERT_EQ(scenario.job(id).holders.at(0).worker, WorkerId("w1"));
  scenario.Do(Drained("w1"));
  EXPECT_THAT(Paused(scenario), ElementsAre("w0"));
  // Copies are written until the ranks have stopped.
  EXPECT_THAT(scenario.ActionsOf<SendReportHoldings>(), IsEmpty());
  scenario.ReleaseAll(id, 6);
  ASSERT_EQ(scenario.job(id).holders.at(0).worker, WorkerId("w2"));
  scenario.ReportAll(id, kReady);
  EXPECT_THAT(Dismissed(scenario), ElementsAre("w1"));
}

TEST(Drain, WhenTooFewRemainTheStateIsSavedAndTheJobWaitsForWorkers) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/2, /*min_workers=*/2);
  scenario.Do(Drained("w0"));
  scenario.Do(Drained("w1"));
  scenario.ReleaseAll(id, 9);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_TRUE(scenario.job(id).save_and_stop);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1"));
  scenario.ReportAll(id, kReady);
  EXPECT_THAT(Paused(scenario), IsEmpty());
  scenario.Do(Saved(scenario.job(id), 9, "out/tiny-1/step-9"));
  scenario.Do(Released(scenario.job(id), 0, 9));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Released(scenario.job(id), 1, 9));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason,
              AllOf(HasSubstr("saved at step 9"), HasSubstr("waits for workers to arrive")));
  EXPECT_THAT(Dismissed(scenario), ElementsAre("w0", "w1"));

  scenario.Do(Lost("w0", 1, "its process exited with code 0"));
  scenario.Do(Lost("w1", 1, "its process exited with code 0"));
  scenario.Do(Joined("w0", 2));
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_FALSE(scenario.job(id).save_and_stop);
  EXPECT_EQ(scenario.job(id).restore.checkpoint, "out/tiny-1/step-9");
  EXPECT_EQ(scenario.job(id).restore.step, 9);
}

TEST(Drain, WhatCannotBeSavedIsTriedAgain) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 1, /*max_workers=*/1);
  scenario.Do(Drained("w0"));
  scenario.ReleaseAll(id, 9);
  ASSERT_TRUE(scenario.job(id).save_and_stop);
  scenario.ReportAll(id, kReady);
  scenario.ReleaseAll(id, 9);
  // A moment later.
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).epoch, Epoch(3));
  EXPECT_TRUE(scenario.job(id).save_and_stop);
  EXPECT_EQ(scenario.job(id).fruitless, 0);
}

TEST(Drain, WhatOthersHoldNeedNotBeSaved) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/2, /*min_workers=*/2);
  scenario.Do(Drained("w0"));
  scenario.ReleaseAll(id, 9);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("waits for workers to arrive"));
  EXPECT_THAT(Dismissed(scenario), ElementsAre("w0"));
  scenario.Do(Joined("w2", 1));
  EXPECT_EQ(scenario.job(id).restore.step, 9);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w2", "w1"));
}

// Reports of different ranks come by different streams.
TEST(Drain, ARankThatSavedAndLeftBeforeAnotherIsHeardToBeReadyWasReady) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 2, /*max_workers=*/2, /*min_workers=*/2);
  scenario.Do(Drained("w0"));
  scenario.Do(Drained("w1"));
  scenario.ReleaseAll(id, 9);
  ASSERT_TRUE(scenario.job(id).save_and_stop);
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  scenario.Do(Saved(scenario.job(id), 9, "out/tiny-1/step-9"));
  scenario.Do(Released(scenario.job(id), 0, 9));
  scenario.Do(Changed(scenario.job(id), 1, kReady));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Released(scenario.job(id), 1, 9));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("saved at step 9"));
}

// Three ranks of which 0 and 1 cannot speak to each other.
JobId BreakLink(Scenario& scenario, int64_t min_workers) {
  const JobId id = RunRanks(scenario, 3, /*max_workers=*/3, min_workers);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 5, 1));
  scenario.Do(Failed(scenario.job(id), 1, "peer 0 closed its link", 5, 0));
  scenario.Do(Failed(scenario.job(id), 2, "peer 1 closed its link", 5, 1));
  scenario.ReleaseAll(id, 5);
  return id;
}

TEST(Links, TheWorkerThatMostComplainOfTakesNoPartAnyMore) {
  Scenario scenario;
  const JobId id = BreakLink(scenario, /*min_workers=*/2);
  EXPECT_THAT(scenario.job(id).excluded, ElementsAre(WorkerId("w1")));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w2"));
  // Nor does the job grow on it.
  scenario.ReportAll(id, kReady);
  scenario.Do(Progressed(scenario.job(id), 6));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(Links, AmongEqualsItIsTheOneOfTheHigherRank) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 3, /*max_workers=*/3);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 5, 1));
  scenario.Do(Failed(scenario.job(id), 1, "peer 0 closed its link", 5, 0));
  scenario.ReleaseAll(id, 5);
  EXPECT_THAT(scenario.job(id).excluded, ElementsAre(WorkerId("w1")));
}

TEST(Links, AWorkerThatTheJobCannotDoWithoutTakesPartAgain) {
  Scenario scenario;
  const JobId id = BreakLink(scenario, /*min_workers=*/3);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1", "w2"));
}

TEST(Links, ABrokenSessionExplainsWhatPeersSaw) {
  Scenario scenario;
  const JobId id = RunRanks(scenario, 3, /*max_workers=*/3);
  scenario.Do(Failed(scenario.job(id), 1, "its session broke", 5, 1));
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 5, 1));
  scenario.ReleaseAll(id, 5);
  EXPECT_THAT(scenario.job(id).excluded, IsEmpty());
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1", "w2"));
}

}  // namespace
}  // namespace sherd
