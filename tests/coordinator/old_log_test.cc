// A log that is older than the workers, as after a backup: they speak of jobs and epochs that it
// does not know.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/candidates.h"
#include "tests/coordinator/trial_scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// It says hello as this rank.
v1::DurableEvent Claims(const std::string& worker, const std::string& job, int64_t epoch,
                        int rank) {
  v1::DurableEvent event = Joined(worker, 1);
  event.mutable_worker_joined()->set_job_id(job);
  event.mutable_worker_joined()->set_epoch(epoch);
  event.mutable_worker_joined()->set_rank(rank);
  return event;
}

// It is released of it; its process holds `step` of the shards `owners` of a world of two.
v1::DurableEvent Freed(const std::string& worker, const std::string& job, int64_t epoch, int rank,
                       int64_t step, const std::vector<int>& owners) {
  v1::DurableEvent event;
  v1::RankChanged& changed = *event.mutable_rank_changed();
  changed.set_job_id(job);
  changed.set_epoch(epoch);
  changed.set_rank(rank);
  changed.set_milestone(kReleased);
  changed.set_lost_peer(-1);
  changed.set_worker_id(worker);
  changed.set_incarnation(1);
  changed.set_step(step);
  for (const int owner : owners) {
    v1::Holding& held = *changed.add_holdings();
    held.set_epoch(epoch);
    held.set_world(2);
    held.set_owner(owner);
    held.set_step(step);
  }
  return event;
}

v1::DurableEvent HoldsNothing(const JobRecord& job, const std::string& worker) {
  return Answered(job, {WorkerId(worker), Incarnation(1), false}, 0);
}

// The log knows epoch 1 on w0 and w1 and step 5; w2 is idle.
JobId RunTwo(Scenario& scenario) {
  scenario.JoinWorkers(3);
  const JobId id = scenario.Run({.min_workers = 2, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  return id;
}

TEST(OlderLog, TheJobGoesOnAfterWhatItsWorkersHoldInAnEpochOfItsOwn) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  // In truth w2 is rank 1 of epoch 4, since w1 had died.
  scenario.Do(Claims("w0", id.value(), 4, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason,
              HasSubstr("worker w0 works in epoch 4 of the job, and the coordinator's log, which "
                        "is older, ends with epoch 1"));
  ASSERT_TRUE(scenario.Feed().front().has_log());
  EXPECT_THAT(scenario.Feed().front().log().text(),
              HasSubstr("worker w0 says that it works in epoch 4 of the job; the coordinator's "
                        "log, which is older, ends with epoch 1"));
  // Both for what the log knows and for what it does not.
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0", "w1"));
  EXPECT_EQ(scenario.worker("w0").seat, (Seat{id, Epoch(4), 0}));
  scenario.Do(Claims("w2", id.value(), 4, 1));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w2"));
  scenario.Do(Lost("w1", 1, "its lease lapsed"));
  scenario.Do(Freed("w2", id.value(), 4, 1, 70, {1, 0}));
  // Who works in it is waited for.
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Freed("w0", id.value(), 4, 0, 70, {0, 1}));
  const JobRecord& job = scenario.job(id);
  ASSERT_EQ(job.state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(job.epoch, Epoch(5));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w2"));
  EXPECT_EQ(job.restore.step, 70);
  EXPECT_EQ(*job.restore.version, (Version{4, 2, 70}));
  for (const v1::JobEvent& entry : scenario.Feed()) EXPECT_FALSE(entry.has_rollback());
  scenario.ReportAll(id, kReady);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

TEST(OlderLog, IdleWorkersAreAskedForCopies) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  scenario.Do(Claims("w0", id.value(), 4, 0));
  ASSERT_THAT(scenario.ActionsOf<SendReportHoldings>(), SizeIs(1));
  EXPECT_EQ(scenario.ActionsOf<SendReportHoldings>()[0].worker, WorkerId("w2"));
  scenario.Do(Released(scenario.job(id), 1, 0));
  scenario.Do(Freed("w0", id.value(), 4, 0, 70, {0}));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  v1::DurableEvent answer = HoldsNothing(scenario.job(id), "w2");
  *answer.mutable_holdings_reported()->mutable_holdings() =
      Freed("w2", id.value(), 4, 0, 70, {1}).rank_changed().holdings();
  scenario.Do(std::move(answer));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 70);
}

TEST(OlderLog, WhatIsNotWholeIsRolledBackFromTheStepThatWorkersTell) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  scenario.Do(Claims("w0", id.value(), 4, 0));
  scenario.Do(Lost("w1", 1, "its lease lapsed"));
  scenario.Do(HoldsNothing(scenario.job(id), "w2"));
  scenario.Do(Freed("w0", id.value(), 4, 0, 70, {0}));
  ASSERT_EQ(scenario.job(id).epoch, Epoch(5));
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  ASSERT_TRUE(scenario.Feed().front().has_rollback());
  EXPECT_EQ(scenario.Feed().front().rollback().from_step(), 70);
}

TEST(OlderLog, AJobThatTheLogHasQueuedGoesOn) {
  Scenario scenario;
  const JobId id = scenario.Submit({.min_workers = 2, .max_workers = 2});
  scenario.Do(Claims("w0", id.value(), 3, 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.state().queue, IsEmpty());
  scenario.Do(Joined("w1", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Freed("w0", id.value(), 3, 1, 9, {0, 1}));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(4));
  EXPECT_EQ(scenario.job(id).restore.step, 9);
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

// What was trained is cut by a layout that the log does not have, and is given up.
TEST(OlderLog, AJobThatItHasUndecidedIsMeasuredAndTrainedFromItsStart) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  const std::string tried = NameOf(Tried(scenario.job(id)));
  for (const int rank : {0, 1}) scenario.Do(Claims(absl::StrCat("w", rank), id.value(), 40, rank));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  for (const int rank : {0, 1}) {
    scenario.Do(Freed(absl::StrCat("w", rank), id.value(), 40, rank, 70, {0, 1}));
  }
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(41));
  EXPECT_TRUE(AssignmentOf(scenario, id, 0).has_trial());
  EXPECT_EQ(NameOf(Tried(scenario.job(id))), tried);
  MeasureToTheEnd(scenario, id);
  const v1::Assignment assignment = AssignmentOf(scenario, id, 0);
  EXPECT_FALSE(assignment.has_trial());
  EXPECT_FALSE(assignment.has_restore());
  EXPECT_EQ(assignment.first_epoch(), scenario.job(id).epoch.value());
  EXPECT_EQ(scenario.job(id).restore.step, 0);
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

// The number of the job is not given to another, whose memory it would seem to hold.
TEST(OlderLog, AnUnknownJobIsStoppedAndItsNumberIsNotGivenAgain) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  scenario.Do(Claims("w1", "other-40", 2, 0));
  EXPECT_EQ(scenario.worker("w1").seat, (Seat{JobId("other-40"), Epoch(2), 0}));
  EXPECT_THAT(scenario.Aborted(), testing::UnorderedElementsAre("w0", "w1"));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("it works for job other-40"));
  EXPECT_EQ(NextJobId(scenario.state(), "tiny"), JobId("tiny-41"));
  scenario.Do(Freed("w1", "other-40", 2, 0, 7, {0}));
  EXPECT_FALSE(scenario.worker("w1").seat);
  ASSERT_THAT(scenario.ActionsOf<SendRetain>(), SizeIs(1));
  EXPECT_TRUE(scenario.ActionsOf<SendRetain>()[0].ended);
}

TEST(OlderLog, OfAJobThatHasEndedInItTheWorkerIsFreed) {
  Scenario scenario;
  scenario.JoinWorkers(1);
  const JobId id = scenario.Submit({.min_workers = 2});
  scenario.Do(CancelRequest(id));
  scenario.Do(Claims("w0", id.value(), 3, 0));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0"));
  scenario.Do(Freed("w0", id.value(), 3, 0, 9, {0}));
  EXPECT_FALSE(scenario.worker("w0").seat);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
}

// All processes are others than the log knows. Those that it knows are lost before long.
TEST(OlderLog, StrangersAreAskedWhenTheEpochThatItKnowsEnds) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Run({.min_workers = 2, .max_workers = 2});
  scenario.Do(Progressed(scenario.job(id), 5));
  for (const int rank : {0, 1}) {
    const std::string worker = absl::StrCat("x", rank);
    scenario.Do(Claims(worker, id.value(), 4, rank));
    EXPECT_THAT(scenario.Aborted(), ElementsAre(worker));
    scenario.Do(Freed(worker, id.value(), 4, rank, 70, {0, 1}));
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  for (const char* worker : {"w0", "w1"}) scenario.Do(Lost(worker, 1, "its lease lapsed"));
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  for (const char* worker : {"x0", "x1"}) {
    v1::DurableEvent answer = HoldsNothing(scenario.job(id), worker);
    *answer.mutable_holdings_reported()->mutable_holdings() =
        Freed(worker, id.value(), 4, 0, 70, {0, 1}).rank_changed().holdings();
    scenario.Do(std::move(answer));
  }
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(5));
  EXPECT_EQ(scenario.job(id).restore.step, 70);
}

// Whoever comes first, and also when the job never forms an epoch of its own again.
TEST(OlderLog, WhatTheLogDoesNotKnowIsSaidOnceAndAtOnce) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  std::vector<std::string> said;
  const auto listen = [&](v1::DurableEvent event) {
    scenario.Do(std::move(event));
    for (const v1::JobEvent& entry : scenario.Feed()) {
      if (entry.has_log() && entry.log().text().find("epoch 4") != std::string::npos) {
        said.push_back(entry.log().text());
      }
    }
  };
  // It has no part in the epoch that the log knows, and ends nothing.
  listen(Claims("x0", id.value(), 4, 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(said, SizeIs(1));
  listen(Claims("w0", id.value(), 4, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  listen(CancelRequest(id));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(said, ElementsAre(HasSubstr("worker x0 says that it works in epoch 4 of the job")));
}

TEST(OlderLog, NumbersThatNoJobReachesAreLies) {
  Scenario scenario;
  const JobId id = RunTwo(scenario);
  scenario.Do(Claims("w0", id.value(), INT64_MAX, 0));
  scenario.Do(Claims("w0", id.value(), 4, -1));
  scenario.Do(Claims("w2", "tiny-9223372036854775807", 1, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(scenario.state().submissions, 1);
}

}  // namespace
}  // namespace sherd
