// How an epoch ends and what the next one is made of (docs/adr/0009).

#include <string>
#include <vector>

#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/recovery_fixture.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// F21, F22: the death of one is known to all at once, and the reason says all there is.
TEST(Recovery, ADeathEndsTheEpochAtOnceForEverybody) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(job.reason, "rank 1 on worker w1 was lost after step 17: killed by signal 9 (SIGKILL)");
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w2"));
  EXPECT_EQ(job.ranks[1].phase, RankPhase::kLost);
  EXPECT_EQ(job.ranks[1].reason, "killed by signal 9 (SIGKILL)");  // F54
}

TEST(Recovery, ASpareTakesTheDeadRankWhenAllOthersHaveAnswered) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario, /*spares=*/1);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Do(Released(scenario.job(id), 0, 17));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Released(scenario.job(id), 2, 17));
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(job.epoch, Epoch(2));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w3", "w2"));
  EXPECT_THAT(scenario.ActionsOf<SendAssign>(), SizeIs(3));
  ASSERT_TRUE(job.restore.version);
  EXPECT_EQ(*job.restore.version, (Version{1, 3, 17}));
  // Rank 2 stores copies of rank 1's shard.
  ASSERT_THAT(job.restore.parts.at(1), SizeIs(1));
  EXPECT_EQ(job.restore.parts.at(1)[0].worker, WorkerId("w2"));

  scenario.ReportAll(id, kReady);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(scenario.job(id).restored, Epoch(2));
  // Everybody who holds something is told what is not needed any more.
  const std::vector<SendRetain> retains = scenario.ActionsOf<SendRetain>();
  ASSERT_THAT(retains, SizeIs(3));
  EXPECT_EQ(retains[0].epoch, Epoch(2));
  EXPECT_FALSE(retains[0].ended);
  EXPECT_THAT(scenario.job(id).answers, IsEmpty());
}

TEST(Recovery, WithoutASpareTheWorldShrinksAndSurvivorsKeepTheirOrder) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.ReleaseAll(id, 17);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w1", "w2"));
  EXPECT_EQ(scenario.job(id).restore.step, 17);
}

TEST(Recovery, FewerThanTheMinimumWaitAndSayForWhatAndGoOnWhenAWorkerComes) {  // F32
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario, /*spares=*/0, /*min_workers=*/3);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.ReleaseAll(id, 17);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason,
              AllOf(HasSubstr("SIGKILL"), HasSubstr("waits for workers to arrive"),
                    HasSubstr("3 idle workers, 2 connected")));
  EXPECT_THAT(OfKind(scenario.Feed(), v1::JobEvent::kState), SizeIs(1));
  scenario.Do(Joined("w9", 1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w9", "w2"));
  EXPECT_EQ(scenario.job(id).restore.step, 17);
}

TEST(Recovery, ALostPeerEndsTheEpochAndTheDeathThatExplainsItBecomesTheReason) {  // F21
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 17, /*lost_peer=*/1));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w1", "w2"));
  scenario.Do(Failed(scenario.job(id), 2, "peer 1 closed its link", 17, /*lost_peer=*/1));
  EXPECT_THAT(scenario.actions(), IsEmpty());
  scenario.Do(Released(scenario.job(id), 0, 17));
  scenario.Do(Released(scenario.job(id), 2, 17));
  // The next epoch is not planned before it is known what became of w1.
  EXPECT_EQ(scenario.job(id).epoch, Epoch(1));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(scenario.job(id).excluded, IsEmpty());
}

TEST(Recovery, ARanksOwnErrorIsABetterReasonThanASuspicion) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.Do(Failed(scenario.job(id), 1, "data.txt vanished", 4));
  EXPECT_EQ(scenario.job(id).reason, "rank 1 on worker w1 failed after step 4: data.txt vanished");
}

// A worker that has left the epoch and dies afterwards is not the cause.
TEST(Recovery, ADeathAfterReleaseDoesNotExplainASuspicion) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.Do(Released(scenario.job(id), 2, 17));
  scenario.Do(Lost("w2", 1, "its process exited with code 0"));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("peer 1 closed its link"));
  // Nor does what it held count any more.
  EXPECT_THAT(scenario.job(id).answers, IsEmpty());
}

TEST(Recovery, ARankThatLeavesUnaskedEndsTheEpoch) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Released(scenario.job(id), 1, 17));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("rank 1 on worker w1 left the job"));
  EXPECT_THAT(scenario.Aborted(), UnorderedElementsAre("w0", "w2"));
}

TEST(Recovery, AWorldThatDoesNotFormInTimeFormsAgainAndNamesWhoWasMissing) {  // F33
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2});
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  scenario.Do(ExpireFormation(scenario.job(id)));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("rank 1 on worker w1"));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0", "w1"));
  scenario.ReleaseAll(id, 0);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
}

TEST(Recovery, ThreeEpochsWithoutAStepFailTheJobWithTheLastCause) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Submit({.min_workers = 2});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    EXPECT_EQ(scenario.job(id).epoch, Epoch(attempt));
    scenario.Do(Failed(scenario.job(id), 1, "cannot open /dev/shm", 0));
    EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
    scenario.ReleaseAll(id, 0);
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(scenario.job(id).reason,
            "3 epochs in a row ended before a step was completed; rank 1 on worker w1 failed after "
            "step 0: cannot open /dev/shm");
  EXPECT_EQ(scenario.IdleWorkers(), 2);
}

TEST(Recovery, AStepBetweenFailuresBeginsTheCountAnew) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  for (int attempt = 0; attempt < 5; ++attempt) {
    scenario.Do(Failed(scenario.job(id), 1, "no luck", 17));
    scenario.ReleaseAll(id, 17 + attempt);
    scenario.ReportAll(id, kReady);
    scenario.Do(Progressed(scenario.job(id), 18 + attempt));
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(scenario.job(id).fruitless, 0);
}

TEST(Recovery, ARankThatFinishedMadeTheOutputDurable) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Changed(scenario.job(id), 2, kFinished));
  scenario.Do(Lost("w2", 1, "its process exited with code 0"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  scenario.Do(Failed(scenario.job(id), 1, "peer 0 closed its link", 17, 0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_SUCCEEDED);
}

TEST(Recovery, AFinishThatIsHeardAfterADeathEndsTheJobWell) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)"));
  scenario.Do(Changed(scenario.job(id), 2, kFinished));
  // The other one may have finished, too, and has more to tell.
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.Do(Released(scenario.job(id), 1, 17));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_SUCCEEDED);
}

TEST(Recovery, AFinishedJobWaitsForARankWhoseSessionBroke) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Changed(scenario.job(id), 1, kFinished));
  scenario.Do(Changed(scenario.job(id), 2, kFinished));
  scenario.Do(Failed(scenario.job(id), 0, "its session broke", 17, /*lost_peer=*/0));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  v1::DurableEvent finished = Changed(scenario.job(id), 0, kFinished);
  finished.mutable_rank_changed()->set_weights_path("out/tiny");
  scenario.Do(finished);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(scenario.job(id).weights_path, "out/tiny");
}

TEST(Recovery, ARecoveringJobGoesBeforeQueuedOnesOfItsPriority) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  const JobId next = scenario.Submit({.name = "next"});
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Do(Released(scenario.job(id), 0, 17));
  // What is idle already is kept for it.
  EXPECT_EQ(scenario.job(next).state, v1::JOB_STATE_QUEUED);
  scenario.Do(Released(scenario.job(id), 2, 17));
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w0", "w2"));
  EXPECT_EQ(scenario.job(next).state, v1::JOB_STATE_QUEUED);
}

TEST(Recovery, EndedJobsNeedNothingAnyMore) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(CancelRequest(id));
  const std::vector<SendRetain> retains = scenario.ActionsOf<SendRetain>();
  ASSERT_THAT(retains, SizeIs(3));
  EXPECT_TRUE(retains[0].ended);
}

TEST(Recovery, CancelWhileRecoveringEndsTheJob) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 0, "peer 1 closed its link", 4, 1));
  scenario.Do(CancelRequest(id));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  scenario.ReleaseAll(id, 17);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(1));
  EXPECT_EQ(scenario.IdleWorkers(), 3);
}

TEST(Recovery, ReplayOfTheLogGivesTheSameState) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario, /*spares=*/1);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Submit({.name = "next", .min_workers = 2});
  scenario.ReleaseAll(id, 17);
  scenario.ReportAll(id, kReady);
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

}  // namespace
}  // namespace sherd
