// Workers that come, go and come back, as the reducer sees them.

#include <optional>
#include <string>

#include "coordinator/core/reducer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Workers, ANewProcessOfAWorkerEndsTheOldOnesRank) {  // F24
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("a new process took the worker's place"));
  EXPECT_FALSE(scenario.worker("w1").seat);
  EXPECT_EQ(scenario.worker("w1").incarnation, Incarnation(2));
}

TEST(Workers, AReplacedProcessNeverComesBack) {  // F24, F25
  Scenario scenario;
  scenario.Do(Joined("w0", 1));
  scenario.Do(Joined("w0", 2));
  scenario.Do(Joined("w0", 1));
  EXPECT_EQ(scenario.worker("w0").incarnation, Incarnation(2));
  scenario.Do(Lost("w0", 1, "late news"));
  EXPECT_TRUE(scenario.worker("w0").alive);
}

TEST(Workers, AThawedWorkerLearnsWhatIsNotNeededAnyMore) {
  Scenario scenario;
  scenario.JoinWorkers(4);
  const JobId id = scenario.Run({.min_workers = 3, .max_workers = 3});
  scenario.Do(Lost("w1", 1, "its lease lapsed", 17));
  scenario.ReleaseAll(id, 17);
  // The next world is not whole yet: nobody may drop anything.
  scenario.Do(Joined("w1", 1));
  EXPECT_THAT(scenario.ActionsOf<SendRetain>(), IsEmpty());
  scenario.ReportAll(id, kReady);
  EXPECT_THAT(scenario.ActionsOf<SendRetain>(), SizeIs(4));

  scenario.Do(Lost("w1", 1, "its lease lapsed"));
  scenario.Do(Joined("w1", 1));
  ASSERT_THAT(scenario.ActionsOf<SendRetain>(), SizeIs(1));
  EXPECT_EQ(scenario.ActionsOf<SendRetain>()[0].worker, WorkerId("w1"));
  EXPECT_FALSE(scenario.ActionsOf<SendRetain>()[0].ended);

  scenario.Do(Lost("w1", 1, "its lease lapsed"));
  scenario.Do(CancelRequest(id));
  scenario.Do(Joined("w1", 1));
  ASSERT_THAT(scenario.ActionsOf<SendRetain>(), SizeIs(1));
  EXPECT_TRUE(scenario.ActionsOf<SendRetain>()[0].ended);
}

TEST(Workers, AThawedWorkerIsIdleOnlyAfterItLeftItsOldRank) {  // F24
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
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

TEST(Workers, AWorkerWithARankOfAnUnknownJobIsToldToStop) {
  Scenario scenario;
  v1::DurableEvent joined = Joined("w0", 1);
  joined.mutable_worker_joined()->set_job_id("forgotten-1");
  joined.mutable_worker_joined()->set_epoch(4);
  scenario.Do(joined);
  EXPECT_THAT(scenario.Aborted(), ElementsAre("w0"));
  EXPECT_EQ(scenario.IdleWorkers(), 0);
}

TEST(Workers, AHelloTakesNoSeatOfALiveEpoch) {  // F55
  for (const int rank : {0, 1, 3, -1, 1 << 30}) {
    for (const int64_t epoch : {1, 2, 1 << 20}) {
      Scenario scenario;
      const JobId id = scenario.RunOnAll(3);
      v1::DurableEvent liar = Joined("x", 1);
      liar.mutable_worker_joined()->set_job_id(id.value());
      liar.mutable_worker_joined()->set_epoch(epoch);
      liar.mutable_worker_joined()->set_rank(rank);
      scenario.Do(liar);
      // At most it is told to stop what the log does not know, as after a backup.
      const std::optional<Seat>& seat = scenario.worker("x").seat;
      EXPECT_TRUE(!seat || seat->epoch == Epoch(epoch)) << rank << " of epoch " << epoch;
      EXPECT_TRUE(!seat || epoch > 1) << rank << " of epoch " << epoch;
      EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
      liar.mutable_worker_joined()->set_epoch(epoch + 1);
      scenario.Do(liar);
      EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
      scenario.Do(Lost("x", 1, "gone"));
      EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
    }
  }
}

TEST(Workers, AHelloTakesOnlyItsOwnSeatOfAnEndedEpoch) {  // F55
  Scenario scenario;
  const JobId id = scenario.RunOnAll(3);
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

TEST(Workers, ForgetsLostWorkersAfterAWhile) {  // F26
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

}  // namespace
}  // namespace sherd
