#include "coordinator/core/reducer.h"

#include <string>
#include <vector>

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
using ::testing::UnorderedElementsAre;

TEST(JobReducer, TakesAJobFromQueuedToSucceeded) {
  Scenario scenario;
  const JobId id = scenario.Submit({.min_workers = 2, .max_workers = 2});
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_QUEUED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("2 idle workers"));

  scenario.JoinWorkers(2);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(1));
  EXPECT_THAT(scenario.ActionsOf<SendAssign>(), SizeIs(2));
  EXPECT_THAT(scenario.ActionsOf<StartFormationTimer>(), SizeIs(1));

  scenario.Do(Changed(scenario.job(id), 1, kReady));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);

  v1::DurableEvent finished = Changed(scenario.job(id), 0, kFinished);
  finished.mutable_rank_changed()->set_weights_path("out/tiny");
  finished.mutable_rank_changed()->set_step(200);
  scenario.Do(finished);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Changed(scenario.job(id), 1, kFinished));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(scenario.job(id).weights_path, "out/tiny");
  EXPECT_EQ(scenario.IdleWorkers(), 2);
  const std::vector<v1::JobEvent> feed = scenario.Feed();
  ASSERT_THAT(feed, SizeIs(2));
  EXPECT_EQ(feed[1].done().steps(), 200);
  EXPECT_EQ(feed[1].done().weights_path(), "out/tiny");
}

TEST(JobReducer, ARetriedSubmitMakesNoSecondJob) {  // F53
  Scenario scenario;
  scenario.Submit({.request_id = "r"});
  scenario.Submit({.request_id = "r"});
  EXPECT_THAT(scenario.state().jobs, SizeIs(1));
  EXPECT_THAT(scenario.actions(), IsEmpty());
}

TEST(JobReducer, NeverPlacesHalfAGang) {
  Scenario scenario;
  scenario.JoinWorkers(3);
  const JobId id = scenario.Submit({.min_workers = 4});
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_QUEUED);
  EXPECT_EQ(scenario.IdleWorkers(), 3);
  scenario.Do(Joined("w3", 1));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w1", "w2", "w3"));
}

TEST(JobReducer, RunsTwoJobsSideBySideOnDisjointWorkers) {
  Scenario scenario;
  scenario.JoinWorkers(4);
  const JobId first = scenario.Submit({.name = "first", .min_workers = 2, .max_workers = 2});
  const JobId second = scenario.Submit({.name = "second", .min_workers = 2, .max_workers = 2});
  EXPECT_THAT(scenario.WorkersOf(first), ElementsAre("w0", "w1"));
  EXPECT_THAT(scenario.WorkersOf(second), ElementsAre("w2", "w3"));

  scenario.ReportAll(first, kReady);
  scenario.ReportAll(second, kReady);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(scenario.job(first).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w1"));
  EXPECT_EQ(scenario.job(second).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, PlacesByPriorityThenByAge) {
  Scenario scenario;
  const JobId low = scenario.Submit({.name = "low", .min_workers = 1, .max_workers = 1});
  const JobId high = scenario.Submit({.name = "high", .max_workers = 1, .priority = 5});
  const JobId later = scenario.Submit({.name = "later", .max_workers = 1, .priority = 5});
  scenario.JoinWorkers(1);
  EXPECT_EQ(scenario.job(high).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.state().queue, ElementsAre(later, low));
  scenario.Do(CancelRequest(high));
  scenario.Do(Changed(scenario.job(high), 0, kReleased));
  EXPECT_EQ(scenario.job(later).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(low).state, v1::JOB_STATE_QUEUED);
}

TEST(JobReducer, ALargeJobIsNotOvertakenBySmallOnes) {
  Scenario scenario;
  scenario.JoinWorkers(4);
  const JobId running = scenario.Submit({.name = "running", .min_workers = 2, .max_workers = 2});
  const JobId large = scenario.Submit({.name = "large", .min_workers = 4});
  const JobId small = scenario.Submit({.name = "small"});
  EXPECT_EQ(scenario.job(small).state, v1::JOB_STATE_QUEUED);
  EXPECT_THAT(scenario.job(small).reason, HasSubstr("large-2 comes first"));
  scenario.Do(CancelRequest(running));
  scenario.ReportAll(running, kReleased);
  EXPECT_EQ(scenario.job(large).state, v1::JOB_STATE_FORMING);
}

TEST(JobReducer, AJobThatFitsNowhereHoldsNobodyUp) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId impossible = scenario.Submit({.name = "impossible", .min_workers = 8});
  const JobId small = scenario.Submit({.name = "small"});
  EXPECT_EQ(scenario.job(impossible).state, v1::JOB_STATE_QUEUED);
  EXPECT_THAT(scenario.job(impossible).reason,
              AllOf(HasSubstr("8 idle workers"), HasSubstr("2 connected")));
  EXPECT_EQ(scenario.job(small).state, v1::JOB_STATE_FORMING);
}

TEST(JobReducer, ADeathAfterTheEndOnlyFreesTheRecord) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  scenario.Do(CancelRequest(id));
  scenario.Do(Lost("w2", 1, "killed by signal 15 (SIGTERM)"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(scenario.job(id).ranks[2].phase, RankPhase::kLost);
  EXPECT_THAT(scenario.actions(), IsEmpty());
}

TEST(JobReducer, AFailureThatWouldComeAgainFailsTheJobAndNamesAllThereIs) {  // F54
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  v1::DurableEvent failed = Failed(scenario.job(id), 2, "no memory for 8 GB", 3);
  failed.mutable_rank_changed()->set_operation("h.3 forward");
  failed.mutable_rank_changed()->set_final(true);
  scenario.Do(failed);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(scenario.job(id).reason,
            "rank 2 on worker w2 failed after step 3 (h.3 forward): no memory for 8 GB");
  // The failed rank answers with RELEASED too, so that "idle" means the same for all.
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w1", "w2"));
}

TEST(JobReducer, AFormationTimerOfARunningJobChangesNothing) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  scenario.Do(ExpireFormation(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, CancelsAQueuedJob) {
  Scenario scenario;
  const JobId id = scenario.Submit();
  scenario.Do(CancelRequest(id));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(scenario.state().queue, IsEmpty());
  scenario.JoinWorkers(1);
  EXPECT_EQ(scenario.IdleWorkers(), 1);
}

TEST(JobReducer, CancelsAFormingJob) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2});
  scenario.Do(CancelRequest(id));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0", "w1"));
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
}

TEST(JobReducer, CancelsARunningJobOnce) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  scenario.Do(CancelRequest(id));
  EXPECT_THAT(scenario.Aborted(), SizeIs(3));
  scenario.Do(CancelRequest(id));
  EXPECT_THAT(scenario.actions(), IsEmpty());
  scenario.ReportAll(id, kReleased);
  EXPECT_EQ(scenario.IdleWorkers(), 3);
}

TEST(JobReducer, ABusyWorkerIsNotPlacedBeforeItIsReleased) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  scenario.Do(CancelRequest(id));
  const JobId next = scenario.Submit({.name = "next", .min_workers = 3});
  scenario.Do(Changed(scenario.job(id), 0, kReleased));
  scenario.Do(Changed(scenario.job(id), 1, kReleased));
  EXPECT_EQ(scenario.job(next).state, v1::JOB_STATE_QUEUED);
  scenario.Do(Changed(scenario.job(id), 2, kReleased));
  EXPECT_EQ(scenario.job(next).state, v1::JOB_STATE_FORMING);
}

TEST(JobReducer, IgnoresReportsOfAnotherEpoch) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  for (const int64_t epoch : {0, 2}) {
    v1::DurableEvent stale = Failed(scenario.job(id), 0, "late", 1);
    stale.mutable_rank_changed()->set_epoch(epoch);
    scenario.Do(stale);
    EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
    EXPECT_THAT(scenario.actions(), IsEmpty());
  }
}

TEST(JobReducer, IgnoresReportsOfAnotherIncarnationOrWorker) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  v1::DurableEvent stale = Failed(scenario.job(id), 0, "late", 1);
  stale.mutable_rank_changed()->set_incarnation(7);
  scenario.Do(stale);
  v1::DurableEvent impostor = Failed(scenario.job(id), 0, "not mine", 1);
  impostor.mutable_rank_changed()->set_worker_id("w1");
  scenario.Do(impostor);
  scenario.Do(Lost("w0", 7, "killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, IgnoresRanksThatDoNotExist) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  for (const int rank : {-1, 3, 1 << 30}) {
    v1::DurableEvent wild = Failed(scenario.job(id), 0, "wild", 1);
    wild.mutable_rank_changed()->set_rank(rank);
    scenario.Do(wild);
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, WarnsOfAMixedWorld) {  // F59
  Scenario scenario;
  v1::DurableEvent other = Joined("w0", 1);
  other.mutable_worker_joined()->set_numerics_fingerprint("avx512");
  scenario.Do(other);
  scenario.Do(Joined("w1", 1));
  scenario.Submit({.min_workers = 2});
  std::string lines;
  for (const v1::JobEvent& entry : scenario.Feed()) lines += entry.log().text();
  EXPECT_THAT(lines, AllOf(HasSubstr("avx512"), HasSubstr("avx2"), HasSubstr("mixed")));
}

TEST(JobReducer, TheFeedTellsOncePerKindOfWait) {
  Scenario scenario;
  const JobId id = scenario.Submit({.min_workers = 4});
  EXPECT_THAT(scenario.Feed(), SizeIs(2));  // submitted, waits
  scenario.Do(Joined("w0", 1));
  EXPECT_THAT(scenario.Feed(), IsEmpty());
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("1 connected"));
}

TEST(JobReducer, JobIdsAreReadableAndUnique) {
  State state;
  EXPECT_EQ(NextJobId(state, "Tiny GPT/2"), JobId("tiny-gpt-2-1"));
  EXPECT_EQ(NextJobId(state, "…"), JobId("job-1"));
  EXPECT_EQ(NextJobId(state, ""), JobId("job-1"));
  state.submissions = 6;
  EXPECT_EQ(NextJobId(state, "tiny"), JobId("tiny-7"));
}

TEST(JobReducer, ReplayOfTheLogGivesTheSameState) {
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Submit({.name = "next", .min_workers = 2});
  scenario.Do(Changed(scenario.job(id), 0, kReleased));
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

}  // namespace
}  // namespace sherd
