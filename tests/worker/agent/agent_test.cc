#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/worker/agent/agent_fixture.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

TEST_F(AgentTest, RunsAJobAndReportsItsMilestonesAndSteps) {
  Start();
  Assign("a");
  TrainObserver* observer = script_.AwaitRunning();
  v1::StepReport step;
  step.set_step(1);
  observer->OnStep(step);
  observer->OnLog("hello");
  script_.Finish();
  EXPECT_TRUE(AwaitReport(4).has_finished());
  EXPECT_TRUE(AwaitReport(1).has_ready() || AwaitReport(1).has_step());
  const v1::RankReport last = AwaitReport(4);
  EXPECT_EQ(last.job_id(), "a");
  EXPECT_EQ(last.epoch(), 1);
  EXPECT_EQ(last.rank(), 2);
  EXPECT_EQ(last.finished().steps(), 9);
  ASSERT_EQ(last.finished().last_steps_size(), 2);
  EXPECT_EQ(last.finished().last_steps(0).step(), 8);
  EXPECT_EQ(last.finished().last_steps(1).step(), 9);
  EXPECT_EQ(script_.alive, 0);
}

// F34
TEST_F(AgentTest, SaysWhereItsRankIsAndWhatItHasCopied) {
  Start();
  Assign("a");
  script_.AwaitRunning();
  v1::SessionResponse question;
  question.mutable_locate()->set_job_id("a");
  question.mutable_locate()->set_epoch(1);
  question.mutable_locate()->set_question(17);
  coordinator_.Send(std::move(question));
  // Before or behind what the rank reports meanwhile.
  v1::RankPosition position;
  ASSERT_TRUE(coordinator_.Await("a position", [&position](const Heard& heard) {
    const auto found =
        std::find_if(heard.reports.begin(), heard.reports.end(),
                     [](const v1::SessionRequest& report) { return report.has_position(); });
    if (found == heard.reports.end()) return false;
    position = found->position();
    return true;
  }));
  EXPECT_EQ(position.rank(), 2);
  EXPECT_EQ(position.step(), 9);
  EXPECT_EQ(position.operation(), "backward h.3 round 0");
  EXPECT_TRUE(position.waiting());
  EXPECT_EQ(position.copied_bytes(), 77);
  EXPECT_EQ(position.question(), 17);
}

// F22, F36: what RankReleased says is true when it is said.
TEST_F(AgentTest, AnswersAnAbortWhenItsTrainerIsGone) {
  Start();
  Assign("a");
  script_.AwaitRunning();
  Abort("a");
  EXPECT_TRUE(AwaitReport(2).has_released());
  EXPECT_EQ(script_.alive, 0);
  Assign("b");
  script_.AwaitRunning();
  EXPECT_TRUE(AwaitReport(3).has_ready());
}

// A release says what the process holds, and nothing of that epoch is taken in from then on.
TEST_F(AgentTest, AReleaseGoesWithTheHoldings) {
  Start();
  const HoldingKey key{"a", 1, 4, 3};
  (*holdings_.Make(key, 64, ""))->Complete(0, 8, 99);
  Assign("a");
  script_.AwaitRunning();
  v1::SessionResponse pause;
  pause.mutable_pause()->set_job_id("a");
  pause.mutable_pause()->set_epoch(1);
  coordinator_.Send(std::move(pause));
  const v1::RankReport released = AwaitReport(2);
  ASSERT_TRUE(released.has_released());
  EXPECT_EQ(released.released().step(), 9);
  ASSERT_EQ(released.released().holdings_size(), 1);
  EXPECT_EQ(released.released().holdings(0).owner(), 3);
  EXPECT_EQ(released.released().holdings(0).step(), 8);
  EXPECT_EQ(released.released().holdings(0).checksum(), 99u);
  EXPECT_FALSE(holdings_.Make({"a", 1, 4, 0}, 64, "").ok());
}

TEST_F(AgentTest, AHolderThatIsNoRankAnswersToo) {
  Start();
  (*holdings_.Make({"a", 2, 4, 3}, 64, ""))->Complete(1, 8, 99);
  ASSERT_TRUE(
      coordinator_.Await("hello", [](const Heard& heard) { return !heard.hellos.empty(); }));
  v1::SessionResponse question;
  question.mutable_report_holdings()->set_job_id("a");
  question.mutable_report_holdings()->set_epoch(2);
  coordinator_.Send(std::move(question));
  ASSERT_TRUE(
      coordinator_.Await("an answer", [](const Heard& heard) { return !heard.reports.empty(); }));
  const v1::SessionRequest answer = coordinator_.heard().reports[0];
  EXPECT_EQ(answer.sequence(), 1u);
  ASSERT_EQ(answer.holdings().holdings_size(), 1);
  EXPECT_EQ(answer.holdings().holdings(0).step(), 8);
  EXPECT_FALSE(holdings_.Make({"a", 2, 4, 0}, 64, "").ok());
}

TEST_F(AgentTest, DropsHoldingsThatAreNotNeededAnyMore) {
  Start();
  (*holdings_.Make({"a", 1, 4, 3}, 64, ""))->Complete(0, 8, 99);
  ASSERT_TRUE(
      coordinator_.Await("hello", [](const Heard& heard) { return !heard.hellos.empty(); }));
  v1::SessionResponse retain;
  retain.mutable_retain()->set_job_id("a");
  retain.mutable_retain()->set_epoch(2);
  coordinator_.Send(std::move(retain));
  v1::SessionResponse question;
  question.mutable_report_holdings()->set_job_id("a");
  question.mutable_report_holdings()->set_epoch(1);
  coordinator_.Send(std::move(question));
  ASSERT_TRUE(
      coordinator_.Await("an answer", [](const Heard& heard) { return !heard.reports.empty(); }));
  EXPECT_EQ(coordinator_.heard().reports[0].holdings().holdings_size(), 0);
  EXPECT_TRUE(holdings_.empty());
}

// Also a worker without a rank.
TEST_F(AgentTest, LetsOwnersOfOtherHostsComeOnceItIsToldTo) {
  Start();
  ASSERT_TRUE(
      coordinator_.Await("hello", [](const Heard& heard) { return !heard.hellos.empty(); }));
  v1::SessionResponse hold;
  hold.mutable_hold()->set_job_id("a");
  hold.mutable_hold()->set_epoch(2);
  hold.mutable_hold()->set_world(4);
  hold.mutable_hold()->add_owners(3);
  hold.mutable_hold()->set_secret("secret");
  coordinator_.Send(std::move(hold));
  // Answered after it.
  v1::SessionResponse question;
  question.mutable_report_holdings()->set_job_id("a");
  question.mutable_report_holdings()->set_epoch(1);
  coordinator_.Send(std::move(question));
  ASSERT_TRUE(
      coordinator_.Await("an answer", [](const Heard& heard) { return !heard.reports.empty(); }));
  EXPECT_TRUE(holdings_.Admit({"a", 2, 4, 3}, "secret").ok());
  EXPECT_FALSE(holdings_.Admit({"a", 2, 4, 3}, "another").ok());
}

// F60: whoever is told to end lets the coordinator move its work first.
TEST_F(AgentTest, AsksToLeaveAndGoesOnUntilItIsLetGo) {
  Start();
  Assign("a");
  script_.AwaitRunning();
  agent_->RequestLeave("SIGTERM");
  ASSERT_TRUE(coordinator_.Await("leaving", [](const Heard& heard) {
    return !heard.reports.empty() && heard.reports.back().has_leaving();
  }));
  EXPECT_EQ(coordinator_.heard().reports.back().leaving().reason(), "SIGTERM");
  v1::SessionResponse pause;
  pause.mutable_pause()->set_job_id("a");
  pause.mutable_pause()->set_epoch(1);
  coordinator_.Send(std::move(pause));
  EXPECT_TRUE(AwaitReport(3).has_released());
  v1::SessionResponse shutdown;
  shutdown.mutable_shutdown()->set_reason("drained");
  coordinator_.Send(std::move(shutdown));
  EXPECT_EQ(Join(), kExitAsked);
}

TEST_F(AgentTest, IsNotKeptFromLeavingForLong) {
  leave_limit_ = absl::Milliseconds(30);
  Start();
  Assign("a");
  script_.AwaitRunning();
  agent_->RequestLeave("SIGTERM");
  EXPECT_EQ(Join(), kExitAsked);
  EXPECT_EQ(script_.alive, 0);
}

// F40
TEST_F(AgentTest, HeartbeatsGoOnWhileTheTrainerBlocks) {
  coordinator_.SetWelcome(/*heartbeat_interval_ms=*/2, 0);
  Start();
  Assign("a");
  script_.AwaitRunning();
  const int before = coordinator_.heard().heartbeats;
  EXPECT_TRUE(coordinator_.Await(
      "heartbeats", [before](const Heard& heard) { return heard.heartbeats > before + 20; }));
}

// F30, F31: training does not notice that the coordinator is away.
TEST_F(AgentTest, TrainsOnWhileTheSessionIsAway) {
  Start();
  Assign("a");
  TrainObserver* observer = script_.AwaitRunning();
  AwaitReport(1);
  coordinator_.Refuse(absl::UnavailableError("restarting"));
  coordinator_.Break();
  ASSERT_TRUE(
      coordinator_.Await("attempts", [](const Heard& heard) { return heard.hellos.size() >= 3; }));
  // It says which rank it still is.
  EXPECT_EQ(coordinator_.heard().hellos.back().job_id(), "a");
  EXPECT_EQ(coordinator_.heard().hellos.back().epoch(), 1);
  EXPECT_EQ(coordinator_.heard().hellos.back().rank(), 2);
  EXPECT_EQ(coordinator_.heard().hellos.back().incarnation(), 5u);
  for (int64_t i = 1; i <= 3; ++i) {
    v1::StepReport step;
    step.set_step(i);
    observer->OnStep(step);
  }
  script_.Finish();
  coordinator_.Refuse(absl::OkStatus());
  EXPECT_EQ(AwaitReport(2).step().step(), 1);
  EXPECT_EQ(AwaitReport(4).step().step(), 3);
  EXPECT_TRUE(AwaitReport(5).has_finished());
}

TEST_F(AgentTest, LooksAtFilesWhileItTrains) {
  Start();
  Assign("a");
  script_.AwaitRunning();
  AwaitReport(1);
  for (const int64_t vocab : {256, 7}) {
    v1::SessionResponse message;
    message.mutable_inspect_data()->set_request_id(vocab);
    message.mutable_inspect_data()->set_vocab(vocab);
    coordinator_.Send(std::move(message));
  }
  AwaitReport(3);
  const std::vector<v1::SessionRequest> answers = coordinator_.heard().reports;
  EXPECT_EQ(answers[1].inspection().request_id(), 256u);
  EXPECT_EQ(answers[1].inspection().error(), "");
  EXPECT_EQ(answers[1].inspection().model().layers(), 3);
  EXPECT_EQ(answers[2].inspection().request_id(), 7u);
  EXPECT_EQ(answers[2].inspection().error(), "no such file: a.txt");
}

TEST_F(AgentTest, StopsWhatRunsAndSaysWhyBeforeItLeaves) {
  Start();
  Assign("a");
  script_.AwaitRunning();
  EXPECT_EQ(Leave(), kExitAsked);
  const std::vector<v1::SessionRequest> reports = coordinator_.heard().reports;
  ASSERT_FALSE(reports.empty());
  EXPECT_THAT(reports.back().report().failed().error(), HasSubstr("the worker was stopped"));
  EXPECT_EQ(script_.alive, 0);
}

TEST_F(AgentTest, LeavesWhenTheCoordinatorSaysSo) {
  Start();
  ASSERT_TRUE(
      coordinator_.Await("hello", [](const Heard& heard) { return !heard.hellos.empty(); }));
  v1::SessionResponse message;
  message.mutable_shutdown()->set_reason("drained");
  coordinator_.Send(std::move(message));
  EXPECT_EQ(Join(), kExitAsked);
}

// F24: the replaced process ends instead of fighting for the id.
TEST_F(AgentTest, LeavesWhenANewerIncarnationHasTakenItsId) {
  Start();
  Assign("a");
  script_.AwaitRunning();
  coordinator_.Refuse(absl::AlreadyExistsError("a newer process"));
  coordinator_.Break();
  EXPECT_EQ(Join(), kExitRefused);
  EXPECT_EQ(script_.alive, 0);
}

// F29
TEST_F(AgentTest, GivesUpWhenATrainerDoesNotHearItsAbort) {
  abort_limit_ = absl::Milliseconds(20);
  {
    absl::MutexLock lock(&script_.mutex);
    script_.deaf = true;
  }
  Start();
  Assign("a");
  script_.AwaitRunning();
  Abort("a");
  EXPECT_EQ(Join(), kExitStuck);
  for (const v1::SessionRequest& request : coordinator_.heard().reports) {
    EXPECT_FALSE(request.report().has_released());
  }
  script_.Finish();
}

int64_t EntriesOf(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return std::distance(begin(entries), end(entries));
}

TEST_F(AgentTest, RunsJobAfterJobWithoutMoreThreadsOrDescriptors) {
  Start();
  int64_t threads = 0;
  int64_t descriptors = 0;
  size_t reports = 0;
  for (int job = 0; job < 100; ++job) {
    Assign(absl::StrCat("job-", job));
    script_.AwaitRunning();
    if (job % 3 == 0) {
      Abort(absl::StrCat("job-", job));
    } else {
      script_.Finish();
    }
    AwaitReport(reports += 2);
    if (job == 20) {
      threads = EntriesOf("/proc/self/task");
      descriptors = EntriesOf("/proc/self/fd");
    }
  }
  EXPECT_LE(EntriesOf("/proc/self/task"), threads + 2);  // gRPC's pool breathes
  EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors);
}

}  // namespace
}  // namespace sherd
