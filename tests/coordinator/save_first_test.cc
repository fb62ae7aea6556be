// What becomes of the state of jobs that have to wait (docs/elasticity.md).

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// A job that needs all its `world` ranks and has completed step 5.
JobId RunAll(Scenario& scenario, int world, const std::string& dir, int64_t tensor = 1) {
  scenario.JoinWorkers(world);
  const JobId id =
      scenario.Run({.min_workers = world, .max_workers = world, .tensor = tensor, .dir = dir});
  scenario.Do(Progressed(scenario.job(id), 5));
  return id;
}

// The same, which has lost its last worker: it waits until it may save on those that are left.
JobId RunAndLoseOne(Scenario& scenario, int world, int64_t tensor = 1) {
  const JobId id = RunAll(scenario, world, "out", tensor);
  scenario.Do(Lost(absl::StrCat("w", world - 1), 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.ReleaseAll(id, 5);
  return id;
}

// Everybody of an epoch that only saves is ready, saves and leaves.
void SaveAll(Scenario& scenario, const JobId& id, int64_t step) {
  ASSERT_TRUE(scenario.job(id).save_and_stop);
  scenario.ReportAll(id, kReady);
  scenario.Do(Saved(scenario.job(id), step, absl::StrCat("out/step-", step)));
  scenario.ReleaseAll(id, step);
}

std::vector<std::string> Dismissed(const Scenario& scenario) {
  std::vector<std::string> workers;
  for (const SendShutdown& shutdown : scenario.ActionsOf<SendShutdown>()) {
    workers.push_back(shutdown.worker.value());
  }
  return workers;
}

std::string Warnings(const Scenario& scenario) {
  std::string texts;
  for (const v1::JobEvent& entry : scenario.Feed()) {
    if (entry.warning().kind() == "replicas") texts += entry.warning().text();
  }
  return texts;
}

TEST(SaveFirst, AJobThatMustWaitSavesItsStateOnWhatIsLeftAndThenWaits) {
  Scenario scenario;
  const JobId id = RunAndLoseOne(scenario, 2);
  // The process may be started anew in a moment.
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), SizeIs(1));
  EXPECT_EQ(scenario.job(id).patience.delay_ms, -1);
  EXPECT_EQ(Warnings(scenario), "");
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0"));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("to save step 5 as a checkpoint"));
  SaveAll(scenario, id, 5);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason,
              AllOf(HasSubstr("saved at step 5"), HasSubstr("waits for workers to arrive")));
  // Once is enough.
  EXPECT_THAT(scenario.ActionsOf<StartPatienceTimer>(), IsEmpty());
  scenario.Do(ExpirePatience(scenario.job(id)));
  scenario.Submit({.name = "other", .min_workers = 3});
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
  // The state is in memory, too.
  scenario.Do(Joined("w2", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_FALSE(scenario.job(id).save_and_stop);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
  EXPECT_TRUE(scenario.job(id).restore.version);
}

TEST(SaveFirst, AWorkerThatComesMeanwhileIsTrainedOn) {
  Scenario scenario;
  const JobId id = RunAndLoseOne(scenario, 2);
  const v1::DurableEvent late = ExpirePatience(scenario.job(id));
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_FALSE(scenario.job(id).save_and_stop);
  scenario.Do(late);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
}

// A rank may be ready, save and leave before the last one is ready: found by the simulation.
TEST(SaveFirst, WhatARankHoldsThatLeavesWhileTheWorldFormsIsNotForgotten) {
  Scenario scenario;
  const JobId id = RunAndLoseOne(scenario, 3);
  scenario.Do(ExpirePatience(scenario.job(id)));
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1"));
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  v1::DurableEvent released = Released(scenario.job(id), 0, 5);
  // Beside what the epoch before left.
  v1::Holding& older = *released.mutable_rank_changed()->add_holdings();
  older = released.rank_changed().holdings(0);
  older.set_epoch(1);
  scenario.Do(std::move(released));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  scenario.Do(Changed(scenario.job(id), 1, kReady));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(scenario.job(id).answers.contains(WorkerId("w0")));
  const std::vector<v1::Holding>& held = scenario.job(id).answers.at(WorkerId("w0")).holdings;
  EXPECT_THAT(held, Not(IsEmpty()));
  for (const v1::Holding& version : held) EXPECT_EQ(version.epoch(), 2);
  scenario.Do(Saved(scenario.job(id), 5, "out/step-5"));
  scenario.Do(Released(scenario.job(id), 1, 5));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  // The next world forms without it, and it is told to drop what it holds.
  scenario.Submit({.name = "other", .max_workers = 1, .priority = 5});
  ASSERT_TRUE(scenario.worker("w0").seat);
  for (const char* worker : {"w3", "w4"}) scenario.Do(Joined(worker, 1));
  ASSERT_THAT(scenario.WorkersOf(id), UnorderedElementsAre("w1", "w3", "w4"));
  scenario.ReportAll(id, kReady);
  std::vector<std::string> told;
  for (const SendRetain& retain : scenario.ActionsOf<SendRetain>()) {
    told.push_back(retain.worker.value());
  }
  EXPECT_THAT(told, Contains("w0"));
}

TEST(SaveFirst, AWorldThatSavesIsOfWholeGroups) {
  Scenario scenario;
  const JobId id = RunAndLoseOne(scenario, 4, /*tensor=*/2);
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1"));
}

TEST(SaveFirst, WorkersThatLeaveOneAfterAnotherLoseNothing) {
  for (const char* dir : {"out", ""}) {
    Scenario scenario;
    const JobId id = RunAll(scenario, 2, dir);
    scenario.Do(Drained("w0"));
    scenario.ReleaseAll(id, 9);
    if (*dir != '\0') {
      // At once: its copies would go with it.
      EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1"));
      SaveAll(scenario, id, 9);
      EXPECT_THAT(Dismissed(scenario), ElementsAre("w0"));
      scenario.Do(Lost("w0", 1, "its process exited with code 0"));
      scenario.Do(Drained("w1"));
      EXPECT_THAT(Dismissed(scenario), ElementsAre("w1"));
    } else {
      EXPECT_THAT(Dismissed(scenario), ElementsAre("w0"));
      scenario.Do(Lost("w0", 1, "its process exited with code 0"));
      scenario.Do(Drained("w1"));
      EXPECT_THAT(Dismissed(scenario), IsEmpty());
      EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w1"));
      SaveAll(scenario, id, 9);
      EXPECT_THAT(Dismissed(scenario), ElementsAre("w1"));
    }
    scenario.Do(Lost("w1", 1, "its process exited with code 0"));
    EXPECT_EQ(scenario.job(id).checkpoint->step, 9);
    for (const char* worker : {"w0", "w1"}) scenario.Do(Joined(worker, 2));
    EXPECT_EQ(scenario.job(id).restore.step, 9);
    EXPECT_EQ(scenario.job(id).step, 9);
  }
}

TEST(SaveFirst, AJobOfHigherPriorityGetsTheWorkersWhenTheStateIsSaved) {
  Scenario scenario;
  const JobId id = RunAll(scenario, 2, "out");
  const JobId urgent =
      scenario.Submit({.name = "urgent", .min_workers = 1, .max_workers = 1, .priority = 1});
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.ReleaseAll(id, 5);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0"));
  EXPECT_EQ(scenario.job(urgent).state, v1::JOB_STATE_QUEUED);
  SaveAll(scenario, id, 5);
  EXPECT_THAT(scenario.WorkersOf(urgent), ElementsAre("w0"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
}

TEST(SaveFirst, WhoWaitsWithItsStateUnsavedKeepsItsWorkers) {
  Scenario scenario;
  const JobId id = RunAll(scenario, 2, "out");
  const JobId next = scenario.Submit({.name = "next", .min_workers = 1, .max_workers = 1});
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.ReleaseAll(id, 5);
  EXPECT_EQ(scenario.job(next).state, v1::JOB_STATE_QUEUED);
  scenario.Do(ExpirePatience(scenario.job(id)));
  SaveAll(scenario, id, 5);
  EXPECT_THAT(scenario.WorkersOf(next), ElementsAre("w0"));
}

TEST(SaveFirst, WithoutADirectoryTheFeedTellsHowManyHoldTheRarestShard) {
  Scenario scenario;
  const JobId id = RunAll(scenario, 3, "");
  scenario.Do(Lost("w2", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.Do(Released(scenario.job(id), 0, 5));
  EXPECT_EQ(Warnings(scenario), "");
  scenario.Do(Released(scenario.job(id), 1, 5));
  EXPECT_EQ(Warnings(scenario),
            "the job waits, and step 5 is in no checkpoint: 1 process holds its rarest shard");
  // Once.
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(Warnings(scenario), "");
  EXPECT_EQ(scenario.job(id).epoch, Epoch(1));
}

// A full disk must not end a job: it is tried again later and later, and not for ever.
TEST(SaveFirst, WhatCannotBeSavedIsWaitedWith) {
  Scenario scenario;
  const JobId id = RunAndLoseOne(scenario, 2);
  std::vector<int64_t> delays;
  for (int attempt = 1; attempt <= 8; ++attempt) {
    scenario.Do(ExpirePatience(scenario.job(id)));
    ASSERT_TRUE(scenario.job(id).save_and_stop) << attempt;
    scenario.ReportAll(id, kReady);
    v1::DurableEvent full = Failed(scenario.job(id), 0, "no space left on device", 5);
    full.mutable_rank_changed()->set_final(true);
    scenario.Do(std::move(full));
    scenario.ReleaseAll(id, 5);
    EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
    if (attempt < 8) delays.push_back(scenario.job(id).patience.delay_ms);
  }
  EXPECT_THAT(delays, ElementsAre(1000, 2000, 4000, 8000, 16000, 32000, 32000));
  EXPECT_THAT(Warnings(scenario), HasSubstr("step 5 is in no checkpoint"));
  scenario.Do(ExpirePatience(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).epoch, Epoch(9));
  EXPECT_EQ(scenario.job(id).fruitless, 0);
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

TEST(SaveFirst, ADeathWhileSavingIsTriedAgainAtOnce) {
  Scenario scenario;
  const JobId id = RunAndLoseOne(scenario, 3);
  scenario.Do(ExpirePatience(scenario.job(id)));
  ASSERT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1"));
  scenario.ReportAll(id, kReady);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 5));
  scenario.ReleaseAll(id, 5);
  EXPECT_TRUE(scenario.job(id).save_and_stop);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0"));
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

}  // namespace
}  // namespace sherd
