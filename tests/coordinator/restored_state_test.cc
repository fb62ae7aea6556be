// What a job goes on with after an epoch has ended, and what is told of it (docs/adr/0009).

#include <utility>
#include <vector>

#include "coordinator/core/epoch_end.h"
#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/recovery_fixture.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A process that was only out of reach, or frozen, comes back with what it holds: it is asked
// before the next epoch is planned, also when its trainer has ended meanwhile.
TEST(Recovery, AProcessThatComesBackIsAskedWhatItHolds) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario, /*spares=*/0, /*min_workers=*/3);
  // Ranks 1 and 2 store copies for 0 and 1; with both of them gone, nobody has rank 1's shard.
  scenario.Do(Lost("w1", 1, "its lease lapsed", 17));
  scenario.Do(Lost("w2", 1, "its lease lapsed", 17));
  scenario.ReleaseAll(id, 17);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  for (const char* worker : {"w1", "w2"}) {
    scenario.Do(Joined(worker, 1));
    ASSERT_THAT(scenario.ActionsOf<SendReportHoldings>(), SizeIs(1)) << worker;
    EXPECT_EQ(scenario.ActionsOf<SendReportHoldings>()[0].worker, WorkerId(worker));
    EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  }
  for (const int rank : {1, 2}) {
    const RankState& state = scenario.job(id).ranks[rank];
    v1::DurableEvent answer =
        Answered(scenario.job(id), {state.worker, state.incarnation, false}, 17);
    v1::Holding& own = *answer.mutable_holdings_reported()->add_holdings();
    own.set_epoch(1);
    own.set_world(3);
    own.set_owner(rank);
    own.set_step(17);
    scenario.Do(std::move(answer));
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).restore.step, 17);
}

TEST(Recovery, WhenNoVersionIsWholeTheNewestCheckpointIsTakenAndTheLossIsTold) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Saved(scenario.job(id), 10, "out/tiny-1/step-10"));
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.ReleaseAll(id, 17);
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_FORMING);
  EXPECT_FALSE(job.restore.version);
  EXPECT_EQ(job.restore.checkpoint, "out/tiny-1/step-10");
  // It is certain when a rank has found it whole, and none that is newer.
  EXPECT_EQ(job.step, 17);
  EXPECT_THAT(OfKind(scenario.Feed(), v1::JobEvent::kRollback), IsEmpty());
  scenario.Do(Changed(job, 0, kReady));
  EXPECT_EQ(job.step, 10);
  const std::vector<v1::JobEvent> told = OfKind(scenario.Feed(), v1::JobEvent::kRollback);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].rollback().from_step(), 17);
  EXPECT_EQ(told[0].rollback().to_step(), 10);
  EXPECT_THAT(told[0].rollback().reason(), HasSubstr("checkpoint out/tiny-1/step-10"));
}

TEST(Recovery, WithoutACheckpointItBeginsAtTheStart) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 17));
  scenario.ReleaseAll(id, 17);
  EXPECT_EQ(scenario.job(id).restore.step, 0);
  EXPECT_THAT(scenario.job(id).restore.checkpoint, IsEmpty());
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  ASSERT_THAT(OfKind(scenario.Feed(), v1::JobEvent::kRollback), SizeIs(1));
}

TEST(Recovery, ACheckpointOfAnOlderEpochIsNotBelieved) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  v1::DurableEvent late = Saved(scenario.job(id), 10, "out/tiny-1/step-10");
  late.mutable_checkpoint_saved()->set_epoch(0);
  scenario.Do(late);
  EXPECT_FALSE(scenario.job(id).checkpoint);
}

TEST(Recovery, AHolderThatIsNoRankIsAskedAndItsDeathEndsTheEpoch) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Run({.max_workers = 1});
  ASSERT_THAT(scenario.job(id).holders, SizeIs(1));
  EXPECT_EQ(scenario.job(id).holders[0].worker, WorkerId("w1"));
  scenario.Do(Progressed(scenario.job(id), 5));

  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)", 5));
  EXPECT_THAT(scenario.ActionsOf<SendReportHoldings>(), SizeIs(1));
  EXPECT_EQ(scenario.job(id).epoch, Epoch(1));
  scenario.Do(Answered(scenario.job(id), scenario.job(id).holders[0], 5));
  EXPECT_EQ(scenario.job(id).epoch, Epoch(2));
  EXPECT_EQ(scenario.job(id).restore.step, 5);
  EXPECT_THAT(scenario.WorkersOf(id), ElementsAre("w1"));

  scenario.ReportAll(id, kReady);
  scenario.Do(Progressed(scenario.job(id), 6));
  scenario.Do(Joined("w2", 1));
  scenario.Do(Failed(scenario.job(id), 0, "no luck", 6));
  scenario.ReleaseAll(id, 6);
  ASSERT_THAT(scenario.job(id).holders, SizeIs(1));
  scenario.Do(Lost("w2", 1, "killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("worker w2, which held copies, was lost"));
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w1"));
}

TEST(Recovery, TheReportOfAnEpochTellsWhatTheRecoveryCost) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  const int64_t begin = scenario.log().back().time_unix_ms();
  v1::DurableEvent lost = Lost("w1", 1, "its lease lapsed", 17);
  lost.mutable_worker_lost()->set_silent_ms(3000);
  scenario.Advance(3999);
  scenario.Do(lost);
  scenario.Advance(199);
  scenario.ReleaseAll(id, 17);
  scenario.Advance(299);
  for (int rank = 0; rank < 2; ++rank) {
    v1::DurableEvent ready = Changed(scenario.job(id), rank, kReady);
    ready.mutable_rank_changed()->set_form_seconds(0.1);
    scenario.Do(ready);
  }
  EXPECT_THAT(OfKind(scenario.Feed(), v1::JobEvent::kEpoch), IsEmpty());
  scenario.Advance(499);
  scenario.Do(Progressed(scenario.job(id), 18));
  const std::vector<v1::JobEvent> told = OfKind(scenario.Feed(), v1::JobEvent::kEpoch);
  ASSERT_THAT(told, SizeIs(1));
  const v1::EpochReport& report = told[0].epoch();
  EXPECT_EQ(report.epoch(), 2);
  EXPECT_EQ(report.world(), 2);
  EXPECT_EQ(report.resumed_step(), 17);
  EXPECT_THAT(report.reason(), HasSubstr("rank 1 on worker w1 was lost"));
  double sum = 0;
  for (const auto& [phase, seconds] : report.recovery_seconds()) sum += seconds;
  const auto wall = static_cast<double>(scenario.log().back().time_unix_ms() - begin - 1000);
  EXPECT_DOUBLE_EQ(sum, wall / 1000);
  EXPECT_DOUBLE_EQ(report.recovery_seconds().at("detect"), 3.0);
  EXPECT_DOUBLE_EQ(report.recovery_seconds().at("reform"), 0.1);
  EXPECT_DOUBLE_EQ(report.recovery_seconds().at("first_step"), 0.5);
  scenario.Do(Progressed(scenario.job(id), 19));
  EXPECT_THAT(scenario.actions(), IsEmpty());
}

// Reports of different ranks come by different streams.
TEST(Recovery, AStepThatIsHeardOfBeforeTheLastRankIsReadyCounts) {
  Scenario scenario;
  const JobId id = RunThreeRanks(scenario);
  scenario.Do(Failed(scenario.job(id), 1, "no luck", 17));
  scenario.ReleaseAll(id, 17);
  scenario.Do(Changed(scenario.job(id), 0, kReady));
  scenario.Do(Progressed(scenario.job(id), 18));
  EXPECT_THAT(OfKind(scenario.Feed(), v1::JobEvent::kEpoch), IsEmpty());
  scenario.Do(Changed(scenario.job(id), 1, kReady));
  scenario.Do(Changed(scenario.job(id), 2, kReady));
  EXPECT_THAT(OfKind(scenario.Feed(), v1::JobEvent::kEpoch), SizeIs(1));
  EXPECT_EQ(scenario.job(id).fruitless, 0);
}

// Found by the simulation: each epoch commits a step and ends before anybody tells of it.
TEST(Recovery, StepsThatWereCommittedUnheardAreProgress) {
  Scenario scenario;
  scenario.JoinWorkers(2);
  const JobId id = scenario.Run({.max_workers = 2});
  for (int64_t step = 1; step <= 2 * kMostFruitless; ++step) {
    scenario.Do(Failed(scenario.job(id), 0, "no luck", step - 1));
    scenario.ReleaseAll(id, step);
    ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING) << scenario.job(id).reason;
    EXPECT_EQ(scenario.job(id).restore.step, step);
    scenario.ReportAll(id, kReady);
  }
  // Those that commit nothing are counted from then on.
  for (int epoch = 1; epoch <= kMostFruitless; ++epoch) {
    scenario.Do(Failed(scenario.job(id), 0, "no luck", 2 * kMostFruitless));
    scenario.ReleaseAll(id, 2 * kMostFruitless);
    scenario.ReportAll(id, kReady);
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
}

}  // namespace
}  // namespace sherd
