// Workers that fall silent with what no other holds, and come back (docs/elasticity.md).

#include <string>
#include <utility>
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

// Two ranks that each hold all, after step 5.
JobId RunTwo(Scenario& scenario) {
  scenario.JoinWorkers(2);
  const JobId id = scenario.Run({.min_workers = 1, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  return id;
}

// Three ranks, after step 5: 1 holds the shards of 0 and 1, 2 those of 1 and 2, 0 those of 2 and 0.
JobId RunThree(Scenario& scenario, const std::string& dir = "", int64_t min_workers = 1) {
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.min_workers = min_workers, .max_workers = 3, .dir = dir});
  scenario.Do(Progressed(scenario.job(id), 5));
  return id;
}

// The worker says hello again as the rank that it still works as.
v1::DurableEvent Back(const JobRecord& job, int rank) {
  v1::DurableEvent event = Joined(job.ranks[rank].worker.value(), 1);
  event.mutable_worker_joined()->set_job_id(job.id.value());
  event.mutable_worker_joined()->set_epoch(job.epoch.value());
  event.mutable_worker_joined()->set_rank(rank);
  return event;
}

bool AnyRollback(const Scenario& scenario) {
  for (const v1::JobEvent& entry : scenario.Feed()) {
    if (entry.has_rollback()) return true;
  }
  return false;
}

TEST(Silence, TheFirstThatIsBackWaitsForTheOthers) {
  Scenario scenario;
  const JobId id = RunThree(scenario);
  const JobRecord ended = scenario.job(id);
  for (const char* worker : {"w0", "w1", "w2"}) scenario.Do(Silent(worker, 1, 5));
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), IsEmpty());
  scenario.Do(Back(ended, 0));
  scenario.Do(Released(ended, 0, 5));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), SizeIs(1));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("waits for workers that fell silent"));
  scenario.Do(Back(ended, 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  // With its two shards all are there.
  scenario.Do(Released(ended, 1, 5));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
  EXPECT_FALSE(AnyRollback(scenario));
}

TEST(Silence, PatienceEnds) {
  Scenario scenario;
  const JobId id = RunThree(scenario);
  for (const char* worker : {"w1", "w2"}) scenario.Do(Silent(worker, 1, 5));
  scenario.Do(Released(scenario.job(id), 0, 5));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  // Of the next epoch it knows nothing.
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
  scenario.ReportAll(id, kReady);
  EXPECT_TRUE(AnyRollback(scenario));
}

// Nothing was stored that could come back.
TEST(Silence, WithoutCopiesNobodyIsWaitedFor) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Run({.min_workers = 1, .max_workers = 2, .replicas = 0});
  scenario.Do(Progressed(scenario.job(id), 5));
  scenario.Do(Silent("w1", 1, 5));
  scenario.Do(Released(scenario.job(id), 0, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), IsEmpty());
  scenario.ReportAll(id, kReady);
  EXPECT_TRUE(AnyRollback(scenario));
}

// What the silent one holds is of no use without what died.
TEST(Silence, WhoCannotMakeTheStepWholeIsNotWaitedFor) {
  Scenario scenario;
  const JobId id = RunThree(scenario);
  scenario.Do(Lost("w2", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.Do(Joined("w3", 1));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Silent("w1", 1, 5));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w3"));
}

TEST(Silence, WhatIsWholeIsNotWaitedFor) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  scenario.Do(Silent("w1", 1, 5));
  scenario.ReleaseAll(id, 5);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

TEST(Silence, TheDeadAreNotWaitedFor) {
  Scenario scenario;
  const JobId id = RunThree(scenario);
  for (const char* worker : {"w1", "w2"}) {
    scenario.Do(Lost(worker, 1, "killed by signal 9 (SIGKILL)", 5));
  }
  scenario.Do(Released(scenario.job(id), 0, 5));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  scenario.ReportAll(id, kReady);
  EXPECT_TRUE(AnyRollback(scenario));
}

// Its steps were trained to the last one before it heard that it had been given up. What it holds
// comes with its answer to that.
TEST(Silence, WhoFinishedMeanwhileIsWaitedForUntilItSaysWhatItHolds) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  const JobRecord ended = scenario.job(id);
  scenario.Do(Silent("w0", 1, 5));
  scenario.Do(Silent("w1", 1, 5));
  scenario.Do(Back(ended, 0));
  scenario.Do(Changed(ended, 0, kFinished));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Released(ended, 0, 9));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 9);
}

TEST(Silence, ANewProcessInItsPlaceEndsTheWait) {
  Scenario scenario;
  const JobId id = RunThree(scenario);
  for (const char* worker : {"w1", "w2"}) scenario.Do(Silent(worker, 1, 5));
  scenario.Do(Released(scenario.job(id), 0, 5));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  // The other one still makes the step whole, and this one would not have without it.
  scenario.Do(Joined("w2", 2));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
}

// Nothing else happens, and nobody comes: the job must not wait with unsaved steps for ever.
TEST(Silence, AJobThatWaitsIsSavedWhenThoseWhoFellSilentDoNotComeBack) {
  Scenario scenario;
  const JobId id = RunThree(scenario, "out", /*min_workers=*/3);
  // An older version is whole.
  const JobRecord ended = scenario.job(id);
  for (const char* worker : {"w1", "w2"}) scenario.Do(Silent(worker, 1, 5));
  v1::DurableEvent released = Released(ended, 0, 5);
  for (int owner = 0; owner < 3; ++owner) {
    v1::Holding& older = *released.mutable_rank_changed()->add_holdings();
    older.set_epoch(1);
    older.set_world(3);
    older.set_owner(owner);
    older.set_step(4);
  }
  scenario.Do(std::move(released));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  ASSERT_EQ(scenario.job(id).patience.what, Patience::For::kSilentBeforeSave);
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), SizeIs(1));
  // Whoever comes meanwhile does not begin the time anew.
  scenario.Do(Joined("w9", 1));
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), IsEmpty());
  scenario.Do(ExpirePatience(scenario.job(id)));
  ASSERT_EQ(scenario.job(id).patience.what, Patience::For::kSave);
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), SizeIs(1));
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_TRUE(scenario.job(id).save_and_stop);
  EXPECT_EQ(scenario.job(id).restore.step, 4);
}

TEST(Silence, WhoComesBackBeforeAJobThatWaitsIsSavedCounts) {
  Scenario scenario;
  const JobId id = RunThree(scenario, "out", /*min_workers=*/3);
  const JobRecord ended = scenario.job(id);
  for (const char* worker : {"w1", "w2"}) scenario.Do(Silent(worker, 1, 5));
  v1::DurableEvent released = Released(ended, 0, 5);
  for (int owner = 0; owner < 3; ++owner) {
    v1::Holding& older = *released.mutable_rank_changed()->add_holdings();
    older = released.rank_changed().holdings(0);
    older.set_owner(owner);
    older.set_step(4);
  }
  scenario.Do(std::move(released));
  scenario.Do(Back(ended, 1));
  scenario.Do(Released(ended, 1, 5));
  ASSERT_EQ(scenario.job(id).patience.what, Patience::For::kSave);
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_TRUE(scenario.job(id).save_and_stop);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

// It had been given up before the epoch was planned that has ended now.
TEST(Silence, WhoComesBackWhileAWorldFormsIsAskedIfThatFails) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.min_workers = 1, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  const JobRecord ended = scenario.job(id);
  // w1 freezes; w0 holds all, and dies while the next world forms.
  scenario.Do(Silent("w1", 1, 5));
  scenario.ReleaseAll(id, 5);
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  // Its trainer has ended meanwhile.
  scenario.Do(Joined("w1", 1));
  EXPECT_THAT(scenario.ActionsOf<SendReportHoldings>(), IsEmpty());
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 5));
  ASSERT_THAT(scenario.ActionsOf<SendReportHoldings>(), SizeIs(1));
  EXPECT_EQ(scenario.ActionsOf<SendReportHoldings>()[0].worker, WorkerId("w1"));
  const JobRecord failed = scenario.job(id);
  scenario.Do(Released(failed, 1, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  v1::DurableEvent answer = Answered(failed, {WorkerId("w1"), Incarnation(1), false}, 0);
  *answer.mutable_holdings_reported()->mutable_holdings() =
      Released(ended, 1, 5).rank_changed().holdings();
  scenario.Do(std::move(answer));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

TEST(Silence, TheEndOfOneThatCameBackMeanwhileEndsNoEpoch) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.min_workers = 1, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  scenario.Do(Silent("w1", 1, 5));
  scenario.ReleaseAll(id, 5);
  scenario.Do(Joined("w1", 1));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 5));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  scenario.ReportAll(id, kReady);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

// What it held is older than what the next epoch began with.
TEST(Silence, WhoFellSilentBeforeTheLastEpochRestoredIsNotWaitedFor) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.min_workers = 1, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  scenario.Do(Silent("w1", 1, 5));
  scenario.ReleaseAll(id, 5);
  scenario.ReportAll(id, kReady);
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Progressed(scenario.job(id), 6));
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 6));
  scenario.Do(Released(scenario.job(id), 1, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  scenario.ReportAll(id, kReady);
  EXPECT_TRUE(AnyRollback(scenario));
}

// Whoever thaws late may hold, whole, what is older than what was saved without it.
TEST(Silence, WhatIsOlderThanTheCheckpointIsNotGoneOnAfter) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  scenario.Do(Saved(scenario.job(id), 5, "out/step-5"));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.ReleaseAll(id, 3);
  EXPECT_FALSE(scenario.job(id).restore.version);
  EXPECT_EQ(scenario.job(id).restore.checkpoint, "out/step-5");
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

// It began the old epoch only when it thawed, and made memory for it.
TEST(Silence, WhoReleasesAnOldEpochMayDropItsMemory) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.min_workers = 1, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  const JobRecord ended = scenario.job(id);
  scenario.Do(Silent("w1", 1, 5));
  scenario.ReleaseAll(id, 5);
  scenario.ReportAll(id, kReady);
  scenario.Do(Back(ended, 1));
  scenario.Do(Released(ended, 1, 0));
  ASSERT_THAT(scenario.ActionsOf<SendRetain>(), SizeIs(1));
  EXPECT_EQ(scenario.ActionsOf<SendRetain>()[0].worker, WorkerId("w1"));
  EXPECT_EQ(scenario.ActionsOf<SendRetain>()[0].epoch, Epoch(2));
}

// They fall silent together, and one after the other is known to have.
TEST(Causes, AnEpochOnAWorkerThatWasSilentBeforeCountsAsNoAttempt) {
  Scenario scenario;
  scenario.JoinWorkers(4);
  const JobId id = scenario.Submit({.min_workers = 1, .max_workers = 1, .replicas = 0});
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::string worker = scenario.job(id).ranks[0].worker.value();
    scenario.Do(Silent(worker, 1));
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Joined("w9", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
}

TEST(Causes, OfThreeEpochsThatEndedDifferentlyAllAreTold) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2});
  const std::vector<std::string> errors = {"cannot open /dev/shm", "no luck",
                                           std::string(5000, 'x')};
  for (const std::string& error : errors) {
    scenario.Do(Failed(scenario.job(id), 1, error, 0));
    scenario.ReleaseAll(id, 0);
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason,
              AllOf(HasSubstr("; 1: rank 1 on worker w1 failed after step 0: cannot open"),
                    HasSubstr("; 2: rank 1 on worker w1 failed after step 0: no luck"),
                    HasSubstr("; 3: rank 1 on worker w1 failed after step 0: xxx")));
  EXPECT_LT(scenario.job(id).reason.size(), 1500);
}

}  // namespace
}  // namespace sherd
