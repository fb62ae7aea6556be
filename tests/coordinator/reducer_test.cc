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

constexpr auto kReady = v1::RankChanged::MILESTONE_READY;
constexpr auto kFinished = v1::RankChanged::MILESTONE_FINISHED;
constexpr auto kReleased = v1::RankChanged::MILESTONE_RELEASED;

// A job of three ranks on w0, w1, w2 that runs.
JobId RunThreeRanks(Scenario& scenario) {
  scenario.JoinWorkers(3);
  const JobId id = scenario.Submit({.min_workers = 3, .max_workers = 3});
  scenario.ReportAll(id, kReady);
  return id;
}

v1::DurableEvent ExpireSuspicion(const JobRecord& job) {
  v1::DurableEvent event;
  event.mutable_suspicion_expired()->set_job_id(job.id.value());
  event.mutable_suspicion_expired()->set_epoch(job.epoch.value());
  return event;
}

v1::DurableEvent ExpireFormation(const JobRecord& job) {
  v1::DurableEvent event;
  event.mutable_formation_expired()->set_job_id(job.id.value());
  event.mutable_formation_expired()->set_epoch(job.epoch.value());
  return event;
}

// The feed entries of the last event.
std::vector<v1::JobEvent> Feed(const Scenario& scenario) {
  std::vector<v1::JobEvent> entries;
  for (const PublishFeed& publish : scenario.ActionsOf<PublishFeed>()) {
    entries.push_back(publish.event);
  }
  return entries;
}

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
  const std::vector<v1::JobEvent> feed = Feed(scenario);
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
  EXPECT_EQ(scenario.job(first).state, v1::JOB_STATE_FAILED);
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

// F21, F22: the death of one is known to all at once, and the reason says all there is.
TEST(JobReducer, ADeadWorkerFailsTheJobAndAbortsItsPeers) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.reason, "rank 1 on worker w1 was lost after step 17: killed by signal 9 (SIGKILL)");
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w2"));
  EXPECT_EQ(job.ranks[1].phase, RankPhase::kLost);
  EXPECT_EQ(job.ranks[1].reason, "killed by signal 9 (SIGKILL)");  // F54
  EXPECT_EQ(scenario.IdleWorkers(), 0);
  scenario.Do(Changed(job, 0, kReleased));
  scenario.Do(Changed(job, 2, kReleased));
  EXPECT_EQ(scenario.IdleWorkers(), 2);
}

TEST(JobReducer, ADeathWhileFormingFailsTheJobToo) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2});
  scenario.Do(Lost("w0", 1, "its process exited with code 1"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w1"));
}

TEST(JobReducer, ADeathAfterTheEndOnlyFreesTheRecord) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(CancelRequest(id));
  scenario.Do(Lost("w2", 1, "killed by signal 15 (SIGTERM)"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(scenario.job(id).ranks[2].phase, RankPhase::kLost);
  EXPECT_THAT(scenario.actions(), IsEmpty());
}

TEST(JobReducer, ARankThatFinishedMayDieWithoutHarm) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Changed(scenario.job(id), 2, kFinished));
  scenario.Do(Lost("w2", 1, "its process exited with code 0"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Changed(scenario.job(id), 0, kFinished));
  scenario.Do(Changed(scenario.job(id), 1, kFinished));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_SUCCEEDED);
}

TEST(JobReducer, AFailedRankNamesRankWorkerStepAndOperation) {  // F54
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  v1::DurableEvent failed = Failed(scenario.job(id), 2, "no memory for 8 GB", 3);
  failed.mutable_rank_changed()->set_operation("h.3 forward");
  scenario.Do(failed);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(scenario.job(id).reason,
            "rank 2 on worker w2 failed after step 3 (h.3 forward): no memory for 8 GB");
  // The failed rank answers with RELEASED too, so that "idle" means the same for all.
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w1", "w2"));
}

TEST(JobReducer, ALostPeerIsASuspicionThatAbortsAtOnceAndWaitsForTheReason) {  // F21
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 17, /*lost_peer=*/1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w1", "w2"));
  EXPECT_THAT(scenario.ActionsOf<StartSuspicionTimer>(), SizeIs(1));

  scenario.Do(Failed(scenario.job(id), 2, "peer 1 closed its link", 17, /*lost_peer=*/1));
  EXPECT_THAT(scenario.Aborted(), IsEmpty());
  EXPECT_THAT(scenario.ActionsOf<StartSuspicionTimer>(), IsEmpty());

  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("rank 1 on worker w1"));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("SIGKILL"));
  scenario.Do(ExpireSuspicion(scenario.job(id)));
  EXPECT_THAT(scenario.actions(), IsEmpty());
}

TEST(JobReducer, ARanksOwnErrorIsABetterReasonThanASuspicion) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.Do(Failed(scenario.job(id), 1, "data.txt vanished", 4));
  EXPECT_EQ(scenario.job(id).reason, "rank 1 on worker w1 failed after step 4: data.txt vanished");
}

TEST(JobReducer, ASuspicionWithoutABetterReasonFailsTheJob) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.ReportAll(id, kReleased);
  EXPECT_EQ(scenario.IdleWorkers(), 3);
  scenario.Do(ExpireSuspicion(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("peer 1 closed its link"));
}

// A worker that has left the epoch and dies afterwards is not the cause.
TEST(JobReducer, ADeathAfterReleaseDoesNotExplainASuspicion) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.Do(Changed(scenario.job(id), 2, kReleased));
  scenario.Do(Lost("w2", 1, "its process exited with code 0"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, AWorldThatDoesNotFormInTimeFailsAndNamesWhoIsMissing) {  // F33
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2});
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  scenario.Do(ExpireFormation(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("rank 1 on worker w1"));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0", "w1"));
}

TEST(JobReducer, AFormationTimerOfARunningJobChangesNothing) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(ExpireFormation(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, ARankThatLeavesUnaskedFailsTheJob) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Changed(scenario.job(id), 1, kReleased));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("rank 1 on worker w1 left the job"));
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w2"));
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
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(CancelRequest(id));
  EXPECT_THAT(scenario.Aborted(), SizeIs(3));
  scenario.Do(CancelRequest(id));
  EXPECT_THAT(scenario.actions(), IsEmpty());
  scenario.ReportAll(id, kReleased);
  EXPECT_EQ(scenario.IdleWorkers(), 3);
}

TEST(JobReducer, CancelDuringASuspicionEndsItAsCancelled) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.Do(CancelRequest(id));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  scenario.Do(ExpireSuspicion(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
}

TEST(JobReducer, ABusyWorkerIsNotPlacedBeforeItIsReleased) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
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
  const JobId id = RunThreeRanks(scenario);
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
  const JobId id = RunThreeRanks(scenario);
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
  const JobId id = RunThreeRanks(scenario);
  for (const int rank : {-1, 3, 1 << 30}) {
    v1::DurableEvent wild = Failed(scenario.job(id), 0, "wild", 1);
    wild.mutable_rank_changed()->set_rank(rank);
    scenario.Do(wild);
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
}

TEST(JobReducer, ANewProcessOfAWorkerEndsTheOldOnesRank) {  // F24
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("a new process took the worker's place"));
  EXPECT_FALSE(scenario.worker("w1").seat);
  EXPECT_EQ(scenario.worker("w1").incarnation, Incarnation(2));
}

TEST(JobReducer, AReplacedProcessNeverComesBack) {  // F24, F25
  Scenario scenario;
  scenario.Do(Joined("w0", 1));
  scenario.Do(Joined("w0", 2));
  scenario.Do(Joined("w0", 1));
  EXPECT_EQ(scenario.worker("w0").incarnation, Incarnation(2));
  scenario.Do(Lost("w0", 1, "late news"));
  EXPECT_TRUE(scenario.worker("w0").alive);
}

TEST(JobReducer, AThawedWorkerIsIdleOnlyAfterItLeftItsOldRank) {  // F24
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w1", 1, "its lease lapsed"));
  v1::DurableEvent back = Joined("w1", 1);
  back.mutable_worker_joined()->set_job_id(id.value());
  back.mutable_worker_joined()->set_epoch(1);
  back.mutable_worker_joined()->set_rank(1);
  scenario.Do(back);
  EXPECT_TRUE(scenario.worker("w1").alive);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w1"));
  EXPECT_TRUE(scenario.worker("w1").seat);
  scenario.Do(Changed(scenario.job(id), 1, kReleased));
  EXPECT_FALSE(scenario.worker("w1").seat);
  EXPECT_EQ(scenario.job(id).ranks[1].phase, RankPhase::kLost);
}

TEST(JobReducer, AWorkerWithARankOfAnUnknownJobIsToldToStop) {
  Scenario scenario;
  v1::DurableEvent joined = Joined("w0", 1);
  joined.mutable_worker_joined()->set_job_id("forgotten-1");
  joined.mutable_worker_joined()->set_epoch(4);
  scenario.Do(joined);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0"));
  EXPECT_EQ(scenario.IdleWorkers(), 0);
}

TEST(JobReducer, AHelloTakesNoSeatOfALiveEpoch) {  // F55
  for (const int rank : {0, 1, 3, -1, 1 << 30}) {
    for (const int64_t epoch : {1, 2, 1 << 20}) {
      Scenario scenario;
      const JobId id = RunThreeRanks(scenario);
      v1::DurableEvent liar = Joined("x", 1);
      liar.mutable_worker_joined()->set_job_id(id.value());
      liar.mutable_worker_joined()->set_epoch(epoch);
      liar.mutable_worker_joined()->set_rank(rank);
      scenario.Do(liar);
      EXPECT_FALSE(scenario.worker("x").seat) << rank << " of epoch " << epoch;
      scenario.Do(Lost("x", 1, "gone"));
      EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
    }
  }
}

TEST(JobReducer, AHelloTakesOnlyItsOwnSeatOfAnEndedEpoch) {  // F55
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(CancelRequest(id));
  for (const int rank : {1, 3, -1, 1 << 30}) {
    v1::DurableEvent liar = Joined("x", 10 + static_cast<uint64_t>(rank + 1));
    liar.mutable_worker_joined()->set_job_id(id.value());
    liar.mutable_worker_joined()->set_epoch(1);
    liar.mutable_worker_joined()->set_rank(rank);
    scenario.Do(liar);
    EXPECT_FALSE(scenario.worker("x").seat) << rank;
  }
}

TEST(JobReducer, ForgetsLostWorkersAfterAWhile) {  // F26
  Scenario scenario;
  scenario.JoinWorkers(2);
  scenario.Do(Lost("w0", 1, "its lease lapsed"));
  scenario.Advance(9 * 60 * 1000);
  scenario.Do(Joined("x", 1));
  EXPECT_THAT(scenario.state().workers, SizeIs(3));
  scenario.Advance(2 * 60 * 1000);
  scenario.Do(Joined("y", 1));
  EXPECT_THAT(scenario.state().workers, SizeIs(3));
  EXPECT_FALSE(scenario.state().workers.contains(WorkerId("w0")));
}

TEST(JobReducer, WarnsOfAMixedWorld) {  // F59
  Scenario scenario;
  v1::DurableEvent other = Joined("w0", 1);
  other.mutable_worker_joined()->set_numerics_fingerprint("avx512");
  scenario.Do(other);
  scenario.Do(Joined("w1", 1));
  scenario.Submit({.min_workers = 2});
  std::string lines;
  for (const v1::JobEvent& entry : Feed(scenario)) lines += entry.log().text();
  EXPECT_THAT(lines, AllOf(HasSubstr("avx512"), HasSubstr("avx2"), HasSubstr("mixed")));
}

TEST(JobReducer, TheFeedTellsOncePerKindOfWait) {
  Scenario scenario;
  const JobId id = scenario.Submit({.min_workers = 4});
  EXPECT_THAT(Feed(scenario), SizeIs(2));  // submitted, waits
  scenario.Do(Joined("w0", 1));
  EXPECT_THAT(Feed(scenario), IsEmpty());
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
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Submit({.name = "next", .min_workers = 2});
  scenario.Do(Changed(scenario.job(id), 0, kReleased));
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

}  // namespace
}  // namespace sherd
