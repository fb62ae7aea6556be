#include "worker/agent/agent_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/agent/agent_events.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(AgentState, TrainsWhatItIsAssignedAndReportsTheEnd) {
  AgentState state;
  EXPECT_THAT(Handle(state, Assign("a", 1)), ElementsAre("start a/1"));
  EXPECT_EQ(state.phase(), AgentState::Phase::kTraining);
  const std::vector<AgentAction> actions = state.Handle(Done(7));
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<Report>(actions[0]).report.finished().steps(), 7);
  EXPECT_EQ(std::get<Report>(actions[0]).report.finished().weights_path(), "out/weights");
  EXPECT_EQ(state.phase(), AgentState::Phase::kIdle);
  EXPECT_THAT(Handle(state, Assign("b", 1)), ElementsAre("start b/1"));
}

// F54: the reason names step, operation and peer.
TEST(AgentState, ReportsAFailureWithStepOperationAndLostPeer) {
  AgentState state;
  Handle(state, Assign("a", 1));
  const v1::RankFailed failed = FailureIn(state, Broken("rank 2 went away"));
  EXPECT_EQ(failed.error(), "rank 2 went away");
  EXPECT_EQ(failed.step(), 3);
  EXPECT_EQ(failed.operation(), "step 4, h.1, reduce_scatter");
  EXPECT_EQ(failed.lost_peer(), 2);
  EXPECT_EQ(state.phase(), AgentState::Phase::kIdle);
}

TEST(AgentState, AnswersTheAbortThatFollowsAFailureAtOnce) {
  AgentState state;
  Handle(state, Assign("a", 1));
  Handle(state, Broken("rank 2 went away"));
  EXPECT_THAT(Handle(state, Abort("a", 1)), ElementsAre("report a/1/r1 released"));
  EXPECT_THAT(Handle(state, Abort("a", 1)), ElementsAre("report a/1/r1 released"));
}

// F22: an abort reaches a rank in the middle of its work, and its end is told when it is true.
TEST(AgentState, ReleasesAnAbortedRankOnlyAfterItsTrainerHasEnded) {
  AgentState state;
  Handle(state, Assign("a", 1));
  EXPECT_THAT(Handle(state, Abort("a", 1)), ElementsAre("abort"));
  EXPECT_EQ(state.phase(), AgentState::Phase::kAborting);
  EXPECT_THAT(Handle(state, Abort("a", 1)), IsEmpty());
  EXPECT_THAT(Handle(state, Aborted()), ElementsAre("report a/1/r1 released"));
  EXPECT_EQ(state.phase(), AgentState::Phase::kIdle);
}

TEST(AgentState, ReleasesARankThatFinishedWhileItWasAborted) {
  AgentState state;
  Handle(state, Assign("a", 1));
  Handle(state, Abort("a", 1));
  EXPECT_THAT(Handle(state, Done()), ElementsAre("report a/1/r1 released"));
}

// F25: what bears an older epoch changes nothing.
TEST(AgentState, IgnoresAnAssignOfAnEpochThatItKnows) {
  AgentState state;
  Handle(state, Assign("a", 2));
  EXPECT_THAT(Handle(state, Assign("a", 2)), IsEmpty());
  EXPECT_THAT(Handle(state, Assign("a", 1)), IsEmpty());
  EXPECT_EQ(state.rank()->epoch, Epoch(2));
  Handle(state, Done());
  EXPECT_THAT(Handle(state, Assign("a", 2)), IsEmpty());
  EXPECT_THAT(Handle(state, Assign("a", 3)), ElementsAre("start a/3"));
}

// F25
TEST(AgentState, AnAbortOfAnOlderEpochIsAnsweredAndDisturbsNothing) {
  AgentState state;
  Handle(state, Assign("a", 2));
  EXPECT_THAT(Handle(state, Abort("a", 1)), ElementsAre("report a/1/r1 released"));
  EXPECT_EQ(state.phase(), AgentState::Phase::kTraining);
  EXPECT_THAT(Handle(state, Abort("b", 5)), ElementsAre("report b/5/r1 released"));
  EXPECT_EQ(state.phase(), AgentState::Phase::kTraining);
}

// F25: the Assign of a dead epoch may still be under way when its Abort arrives on a new stream.
TEST(AgentState, NeverStartsAnEpochThatWasAbortedBefore) {
  AgentState state;
  Handle(state, Abort("a", 1));
  EXPECT_THAT(Handle(state, Assign("a", 1)), IsEmpty());
  EXPECT_THAT(Handle(state, Assign("a", 2)), ElementsAre("start a/2"));
}

TEST(AgentState, AnAbortOfALaterEpochEndsTheCurrentOne) {
  AgentState state;
  Handle(state, Assign("a", 1));
  EXPECT_THAT(Handle(state, Abort("a", 2)), ElementsAre("abort"));
  EXPECT_THAT(Handle(state, Abort("a", 1)), IsEmpty());
  EXPECT_THAT(Handle(state, Aborted()),
              ElementsAre("report a/2/r1 released", "report a/1/r1 released"));
}

TEST(AgentState, RefusesASecondAssignWhileItWorks) {
  AgentState state;
  Handle(state, Assign("a", 1, 0));
  const v1::RankFailed refused = FailureIn(state, Assign("b", 1, 3));
  EXPECT_THAT(refused.error(), HasSubstr("still works on job a, epoch 1"));
  EXPECT_EQ(refused.lost_peer(), -1);
  EXPECT_EQ(state.rank()->job, JobId("a"));
  EXPECT_THAT(Handle(state, Abort("b", 1, 3)), ElementsAre("report b/1/r3 released"));
  EXPECT_THAT(Handle(state, Done()), ElementsAre("report a/1/r0 finished"));
}

TEST(AgentState, ReleasesWithTheRankOfTheEpochThatWasAborted) {
  AgentState state;
  Handle(state, Assign("a", 1, 2));
  Handle(state, Assign("a", 2, 0));  // refused
  Handle(state, Abort("a", 1, 2));
  Handle(state, Abort("a", 2, 0));
  EXPECT_THAT(Handle(state, Abort("a", 1, 2)), IsEmpty());
  EXPECT_THAT(Handle(state, Aborted()),
              ElementsAre("report a/1/r2 released", "report a/2/r0 released"));
}

TEST(AgentState, LeavesAtOnceWhenIdle) {
  AgentState state;
  EXPECT_THAT(Handle(state, StopRequested{kExitAsked, "SIGTERM"}), ElementsAre("exit 0"));
  EXPECT_THAT(Handle(state, Assign("a", 1)), IsEmpty());
  EXPECT_THAT(Handle(state, Abort("a", 1)), IsEmpty());
}

TEST(AgentState, LeavesAfterItsTrainerHasEndedAndSaysWhy) {
  AgentState state;
  Handle(state, Assign("a", 1));
  EXPECT_THAT(Handle(state, StopRequested{kExitAsked, "SIGTERM"}), ElementsAre("abort"));
  const std::vector<AgentAction> actions = state.Handle(Aborted());
  ASSERT_EQ(actions.size(), 2u);
  EXPECT_EQ(std::get<Report>(actions[0]).report.failed().error(),
            "the worker was stopped: SIGTERM");
  EXPECT_EQ(std::get<ExitProcess>(actions[1]).code, kExitAsked);
  EXPECT_EQ(state.phase(), AgentState::Phase::kStopped);
}

TEST(AgentState, ReleasesAndLeavesWhenAnAbortAndAStopMeet) {
  for (const bool stop_first : {false, true}) {
    AgentState state;
    Handle(state, Assign("a", 1));
    std::vector<AgentEvent> events = {Abort("a", 1), StopRequested{kExitAsked, "SIGTERM"}};
    if (stop_first) std::swap(events[0], events[1]);
    EXPECT_THAT(Handle(state, events[0]), ElementsAre("abort"));
    EXPECT_THAT(Handle(state, events[1]), IsEmpty());
    EXPECT_THAT(Handle(state, Aborted()), ElementsAre("report a/1/r1 released", "exit 0"));
  }
}

TEST(AgentState, TheFirstReasonToStopCounts) {
  AgentState state;
  Handle(state, Assign("a", 1));
  Handle(state, StopRequested{kExitRefused, "another process has taken this worker's id"});
  EXPECT_THAT(Handle(state, StopRequested{kExitAsked, "SIGTERM"}), IsEmpty());
  EXPECT_THAT(Handle(state, Done()), ElementsAre("report a/1/r1 finished", "exit 1"));
}

// F29: a trainer that hangs in its abort takes the process with it, not the job.
TEST(AgentState, GivesUpOnATrainerThatDoesNotEnd) {
  AgentState state;
  Handle(state, Assign("a", 1));
  EXPECT_THAT(Handle(state, AbortOverdue{}), IsEmpty());
  Handle(state, Abort("a", 1));
  EXPECT_THAT(Handle(state, AbortOverdue{}), ElementsAre("exit 70"));
}

TEST(AgentState, RemembersABoundedNumberOfJobs) {
  AgentState state;
  for (size_t i = 0; i <= AgentState::kRememberedJobs; ++i) {
    Handle(state, Assign(absl::StrCat("job-", i), 1));
    Handle(state, Done());
  }
  EXPECT_THAT(Handle(state, Abort("job-0", 1)), ElementsAre("report job-0/1/r1 released"));
  EXPECT_THAT(Handle(state, Abort("job-64", 1)), ElementsAre("report job-64/1/r1 released"));
}

// ---- Random sequences ----

// Drives a state with events that can happen, and checks what must hold after each.
class RandomLife {
 public:
  explicit RandomLife(uint64_t seed) : random_(seed) {}

  void Run(int events) {
    for (int i = 0; i < events && !exited_; ++i) Step();
    // Whatever came before, the trainer's end settles everything: no stuck state.
    if (trainer_runs_ && !exited_) Apply(Pick(2) == 0 ? AgentEvent(Done()) : AgentEvent(Aborted()));
    if (!exited_) {
      EXPECT_EQ(state_.phase(), AgentState::Phase::kIdle);
      EXPECT_THAT(unanswered_, IsEmpty());
      Apply(Assign("fresh", 1));
      EXPECT_TRUE(trainer_runs_);
    }
  }

 private:
  using Key = std::pair<std::string, int64_t>;

  int Pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  std::string Job() { return absl::StrCat("j", Pick(3)); }

  void Step() {
    const int kind = Pick(40);
    if (kind < 14) return Apply(Assign(Job(), 1 + Pick(5), Pick(4)));
    if (kind < 28) return Apply(Abort(Job(), 1 + Pick(5)));
    if (kind == 28) return Apply(StopRequested{kExitAsked, "SIGTERM"});
    if (!trainer_runs_) return;
    if (kind < 35) return Apply(Done());
    if (kind < 37) return Apply(Broken("rank 2 went away"));
    Apply(Aborted());
  }

  void Apply(const AgentEvent& event) {
    if (const auto* abort = std::get_if<AbortReceived>(&event)) {
      unanswered_.insert({abort->abort.job_id(), abort->abort.epoch()});
    }
    if (std::holds_alternative<TrainerEnded>(event)) trainer_runs_ = false;
    for (const AgentAction& action : state_.Handle(event)) Check(action);
    EXPECT_EQ(state_.rank().has_value(), trainer_runs_);
    // An Abort waits for nothing but the trainer of its own job.
    for (const Key& key : unanswered_) {
      ASSERT_TRUE(trainer_runs_ && key.first == current_.first && key.second >= current_.second);
    }
  }

  void Check(const AgentAction& action) {
    ASSERT_FALSE(exited_) << "acted after the exit";
    if (const auto* start = std::get_if<StartTrainer>(&action)) {
      const Key key = {start->assignment.job_id(), start->assignment.epoch()};
      ASSERT_FALSE(trainer_runs_) << "two trainers at once";
      ASSERT_LT(newest_started_[key.first], key.second) << "an epoch was started twice";
      newest_started_[key.first] = key.second;
      current_ = key;
      trainer_runs_ = true;
      aborts_sent_ = 0;
    } else if (std::holds_alternative<AbortTrainer>(action)) {
      ASSERT_TRUE(trainer_runs_);
      ASSERT_EQ(++aborts_sent_, 1);
    } else if (const auto* report = std::get_if<Report>(&action)) {
      const Key key = {report->report.job_id(), report->report.epoch()};
      if (!report->report.has_released()) return;
      ASSERT_EQ(unanswered_.erase(key), 1u) << "released without an abort, or twice";
      ASSERT_FALSE(trainer_runs_ && key == current_) << "released a rank that still works";
    } else {
      ASSERT_FALSE(trainer_runs_) << "left with a trainer";
      exited_ = true;
      ASSERT_THAT(unanswered_, IsEmpty());
    }
  }

  std::mt19937_64 random_;
  AgentState state_;
  bool trainer_runs_ = false;
  bool exited_ = false;
  int aborts_sent_ = 0;
  Key current_;
  std::map<std::string, int64_t> newest_started_;
  std::set<Key> unanswered_;
};

// A trainer that has stopped with all others is released, with the step that they stopped after.
TEST(AgentState, APausedRankIsReleased) {
  AgentState state;
  Handle(state, Assign("a", 2));
  EXPECT_THAT(Handle(state, Pause("a", 2)), ElementsAre("pause"));
  EXPECT_EQ(state.phase(), AgentState::Phase::kTraining);
  const std::vector<AgentAction> actions = state.Handle(Paused(5));
  ASSERT_EQ(actions.size(), 1u);
  const v1::RankReport& report = std::get<Report>(actions[0]).report;
  EXPECT_EQ(report.epoch(), 2);
  EXPECT_EQ(report.released().step(), 5);
  EXPECT_EQ(state.phase(), AgentState::Phase::kIdle);
  // One that came late is answered, too, and another epoch's is none of ours.
  EXPECT_THAT(Handle(state, Pause("a", 2)), ElementsAre("report a/2/r1 released"));
  EXPECT_THAT(Handle(state, Pause("a", 1)), IsEmpty());
  EXPECT_THAT(Handle(state, Pause("b", 1)), IsEmpty());
}

TEST(AgentState, APauseOfAnAbortedRankChangesNothing) {
  AgentState state;
  Handle(state, Assign("a", 1));
  Handle(state, Abort("a", 1));
  EXPECT_THAT(Handle(state, Pause("a", 1)), IsEmpty());
  EXPECT_THAT(Handle(state, Paused(3)), ElementsAre("report a/1/r1 released"));
}

// F34: where a rank is can be asked at any time.
TEST(AgentState, TellsWhereTheTrainerIsThatRuns) {
  AgentState state;
  EXPECT_THAT(Handle(state, Locate("a", 1)), IsEmpty());
  Handle(state, Assign("a", 1));
  EXPECT_THAT(Handle(state, Locate("a", 1)), ElementsAre("tell a/1"));
  EXPECT_THAT(Handle(state, Locate("a", 2)), IsEmpty());
  EXPECT_THAT(Handle(state, Locate("b", 1)), IsEmpty());
}

// Who is let go at work was given up: a new process is wanted. One that is idle may rest.
TEST(AgentState, TheExitCodeTellsWhetherTheWorkerWasGivenUp) {
  const StopRequested shutdown{kExitAsked, "did not release in time", kExitStuck};
  AgentState idle;
  EXPECT_THAT(Handle(idle, shutdown), ElementsAre("exit 0"));
  AgentState busy;
  Handle(busy, Assign("a", 1));
  EXPECT_THAT(Handle(busy, shutdown), ElementsAre("abort"));
  EXPECT_THAT(Handle(busy, Aborted()), ElementsAre("report a/1/r1 failed", "exit 70"));
}

// Its peers' complaints reach the coordinator first, and its Abort comes back while the trainer
// still cleans up: the cause is told nevertheless.
TEST(AgentState, TellsItsOwnFailureAlsoWhenItWasAbortedMeanwhile) {
  AgentState state;
  Handle(state, Assign("a", 1));
  Handle(state, Abort("a", 1));
  TrainerEnded own = Broken("the file was cut short");
  own.lost_peer = -1;
  EXPECT_THAT(Handle(state, own), ElementsAre("report a/1/r1 failed", "report a/1/r1 released"));
  AgentState other;
  Handle(other, Assign("a", 1));
  Handle(other, Abort("a", 1));
  EXPECT_THAT(Handle(other, Broken("rank 2 went away")), ElementsAre("report a/1/r1 released"));
}

// A holder that hears of the epoch's end first closes its links.
TEST(AgentState, AHolderThatIsLostIsNamedUnlessTheEpochIsOver) {
  TrainerEnded event = Broken("the process at tcp:b:1 does not store this rank's shard");
  event.lost_peer = -1;
  event.lost_holder = "tcp:b:1";
  AgentState state;
  Handle(state, Assign("a", 1));
  EXPECT_EQ(FailureIn(state, event).lost_holder(), "tcp:b:1");
  AgentState other;
  Handle(other, Assign("a", 1));
  Handle(other, Abort("a", 1));
  EXPECT_THAT(Handle(other, event), ElementsAre("report a/1/r1 released"));
}

TEST(AgentState, AFailureThatWouldRepeatSaysSo) {
  AgentState state;
  Handle(state, Assign("a", 1));
  TrainerEnded event = Broken("no such file");
  event.final = true;
  EXPECT_TRUE(FailureIn(state, event).final());
}

TEST(AgentState, AnswersEveryAbortOnceAndIsNeverStuckInRandomLives) {
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    RandomLife(seed).Run(40);
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace sherd
