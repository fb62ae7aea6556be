// A job that survives, as workers and watchers hear of it.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/runtime/hang_verdict.h"
#include "coordinator/runtime/state_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/coordinator/controller_fixture.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Link = std::shared_ptr<RecordingLink>;

class ElasticTest : public ControllerTest {
 protected:
  // A job of two ranks on w0 and w1 that has completed step 1; w2 is a spare.
  void SetUp() override {
    for (const char* worker : {"w0", "w1", "w2"}) Connect(worker);
    v1::SubmitRequest request = RequestOf("request", 2);
    request.mutable_spec()->mutable_elastic()->set_min_workers(1);
    job_ = Submit(request);
    Say("w0", ReadyReport(job_, 0));
    Say("w1", ReadyReport(job_, 1));
    Say("w0", StepReportOf(job_, 0, 1, 4.0));
    ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  }

  void Say(const std::string& worker, const v1::RankReport& report) {
    Report(links_.at(worker), ++sequences_[worker], report);
  }

  // SIGTERM.
  void Leave(const std::string& worker) {
    v1::SessionRequest leaving;
    leaving.set_sequence(++sequences_[worker]);
    leaving.mutable_leaving()->set_reason("SIGTERM");
    Tell(links_.at(worker), leaving);
  }

  // Rank `rank` of `epoch` stops; its process holds `step` of both shards.
  void Release(const std::string& worker, int rank, int64_t step, int64_t epoch = 1) {
    v1::RankReport report = ReleasedReport(job_, rank, epoch);
    report.mutable_released()->set_step(step);
    for (int owner = 0; owner < 2; ++owner) {
      *report.mutable_released()->add_holdings() = HoldingOf(epoch, 2, owner, step);
    }
    Say(worker, report);
  }

  void KillRankOne() {
    ReportExit("w1", 1, SIGKILL);
    Release("w0", 0, 1);
  }

  // Heartbeats of all that are connected until `duration` has passed.
  void Live(absl::Duration duration) {
    for (absl::Duration passed; passed < duration; passed += absl::Milliseconds(300)) {
      Advance(absl::Milliseconds(300));
      for (const auto& [worker, link] : links_) Heartbeat(link);
    }
  }

  v1::Hello HelloWithRank(const std::string& worker, int rank, int64_t epoch) {
    v1::Hello hello = HelloOf(worker, 1);
    hello.set_job_id(job_.value());
    hello.set_epoch(epoch);
    hello.set_rank(rank);
    return hello;
  }

  std::vector<v1::JobEvent> Entries(v1::JobEvent::EventCase kind) {
    std::vector<v1::JobEvent> found;
    for (const v1::JobEvent& entry : Feed(job_)) {
      if (entry.event_case() == kind) found.push_back(entry);
    }
    return found;
  }

  std::vector<int64_t> Steps() {
    std::vector<int64_t> steps;
    for (const v1::JobEvent& entry : Entries(v1::JobEvent::kStep)) {
      steps.push_back(entry.step().step());
    }
    return steps;
  }

  v1::Assignment LastAssignment(const std::string& worker) {
    for (auto message = links_.at(worker)->sent.rbegin(); message != links_.at(worker)->sent.rend();
         ++message) {
      if (message->has_assign()) return message->assign();
    }
    return {};
  }

  void Locate(const std::string& worker, int rank, const std::string& operation, bool waiting,
              const std::vector<int>& missing) {
    v1::SessionRequest request;
    v1::RankPosition& position = *request.mutable_position();
    position.set_job_id(job_.value());
    position.set_epoch(1);
    position.set_rank(rank);
    position.set_step(1);
    position.set_operation(operation);
    position.set_waiting(waiting);
    for (const int other : missing) position.add_missing(other);
    Tell(links_.at(worker), request);
  }

  std::map<std::string, uint64_t> sequences_;
  JobId job_;
};

TEST_F(ElasticTest, ASpareIsToldWhereToReadAndTheFeedWhatItCost) {
  KillRankOne();
  ASSERT_EQ(Job(job_).epoch, Epoch(2));
  const v1::Assignment assignment = LastAssignment("w2");
  EXPECT_EQ(assignment.rank(), 1);
  EXPECT_EQ(assignment.epoch(), 2);
  EXPECT_EQ(assignment.secret(), std::string(32, 's') + ":2");
  EXPECT_EQ(assignment.reported_step(), 1);
  EXPECT_EQ(assignment.restore().epoch(), 1);
  EXPECT_EQ(assignment.restore().step(), 1);
  ASSERT_THAT(assignment.restore().sources(), SizeIs(1));
  EXPECT_EQ(assignment.restore().sources(0).owner(), 1);
  EXPECT_EQ(assignment.restore().sources(0).address(), "unix-abstract:w0");
  EXPECT_THAT(assignment.holders(), ElementsAre("unix-abstract:w0"));

  Say("w0", ReadyReport(job_, 0, 2));
  Say("w2", ReadyReport(job_, 1, 2));
  EXPECT_THAT(links_.at("w0")->Kinds(), Contains("retain"));
  EXPECT_THAT(Entries(v1::JobEvent::kEpoch), SizeIs(1));
  Say("w0", StepReportOf(job_, 0, 2, 3.5, 2));
  const std::vector<v1::JobEvent> epochs = Entries(v1::JobEvent::kEpoch);
  ASSERT_THAT(epochs, SizeIs(2));
  EXPECT_EQ(epochs[1].epoch().resumed_step(), 1);
  EXPECT_THAT(epochs[1].epoch().recovery_seconds(), SizeIs(5));
  EXPECT_THAT(epochs[1].epoch().reason(), HasSubstr("killed by signal 9 (SIGKILL)"));
  // The epoch is told before its first step.
  EXPECT_EQ(epochs[1].sequence() + 1, Entries(v1::JobEvent::kStep).back().sequence());
}

TEST_F(ElasticTest, StepsThatTheFeedHasAreNotTakenTwice) {
  KillRankOne();
  Say("w0", ReadyReport(job_, 0, 2));
  Say("w2", ReadyReport(job_, 1, 2));
  v1::RankReport old = StepReportOf(job_, 0, 1, 4.0, 2);
  old.mutable_step()->set_epoch(1);
  Say("w0", old);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_FALSE(Job(job_).progressed);
  Say("w0", StepReportOf(job_, 0, 2, 3.5, 2));
  Say("w0", StepReportOf(job_, 0, 2, 3.5, 2));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("step 2 came after step 2"));
}

TEST_F(ElasticTest, StepsThatADeadReporterDidNotSendAreOfItsEpoch) {
  ReportExit("w1", 1, SIGKILL);
  // Step 2 was committed, and nobody had said so.
  Release("w0", 0, 2);
  Say("w0", ReadyReport(job_, 0, 2));
  Say("w2", ReadyReport(job_, 1, 2));
  v1::RankReport unsent = StepReportOf(job_, 0, 2, 3.5, 2);
  unsent.mutable_step()->set_epoch(1);
  Say("w0", unsent);
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  EXPECT_EQ(Entries(v1::JobEvent::kStep).back().step().epoch(), 1);
  // That is no step of this epoch.
  EXPECT_FALSE(Job(job_).progressed);
}

TEST_F(ElasticTest, StepsThatWereCommittedBeforeTheEndStillCount) {
  Say("w1", FailedReport(job_, 1, "no luck", -1));
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
}

TEST_F(ElasticTest, AfterARollbackTheLostStepsAreReportedAgain) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  ReportExit("w1", 1, SIGKILL);
  Say("w0", ReleasedReport(job_, 0));
  EXPECT_FALSE(LastAssignment("w0").has_restore());
  // Whether anything was lost is said by who has looked for checkpoints.
  EXPECT_THAT(Entries(v1::JobEvent::kRollback), IsEmpty());
  for (const bool again : {false, true}) {
    if (again) {
      Restart();
      Connect(HelloWithRank("w0", 0, 2));
      Connect(HelloWithRank("w2", 1, 2));
    } else {
      Say("w0", ReadyReport(job_, 0, 2));
      ASSERT_THAT(Entries(v1::JobEvent::kRollback), SizeIs(1));
      EXPECT_EQ(Entries(v1::JobEvent::kRollback)[0].rollback().from_step(), 2);
      Say("w2", ReadyReport(job_, 1, 2));
    }
    Say("w0", StepReportOf(job_, 0, again ? 2 : 1, 3.0, 2));
    EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  }
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 1, 2));
}

// The coordinator had not heard of it: it was saved while it was away.
TEST_F(ElasticTest, ARollbackGoesNoFurtherThanTheRanksHadTo) {
  for (int64_t step = 2; step <= 9; ++step) Say("w0", StepReportOf(job_, 0, step, 3.5));
  ReportExit("w1", 1, SIGKILL);
  Say("w0", ReleasedReport(job_, 0));
  v1::RankReport ready = ReadyReport(job_, 0, 2);
  ready.mutable_ready()->set_step(7);
  Say("w0", ready);
  // What is trained and told before the last rank is heard of is not taken back again.
  Say("w0", StepReportOf(job_, 0, 8, 3.25, 2));
  ready.set_rank(1);
  Say("w2", ready);
  const std::vector<v1::JobEvent> told = Entries(v1::JobEvent::kRollback);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].rollback().from_step(), 9);
  EXPECT_EQ(told[0].rollback().to_step(), 7);
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 8));
  ASSERT_THAT(Entries(v1::JobEvent::kEpoch), SizeIs(2));
  EXPECT_EQ(Entries(v1::JobEvent::kEpoch)[1].epoch().resumed_step(), 7);
  EXPECT_EQ(Job(job_).step, 8);
  EXPECT_TRUE(Job(job_).progressed);
}

TEST_F(ElasticTest, ACheckpointBeyondWhatWasReportedLosesNothingButFigures) {
  ReportExit("w1", 1, SIGKILL);
  Say("w0", ReleasedReport(job_, 0));
  v1::RankReport ready = ReadyReport(job_, 0, 2);
  ready.mutable_ready()->set_step(7);
  Say("w0", ready);
  EXPECT_THAT(Entries(v1::JobEvent::kRollback), IsEmpty());
  EXPECT_EQ(Job(job_).step, 7);
  EXPECT_THAT(Entries(v1::JobEvent::kLog).back().log().text(),
              HasSubstr("checkpoint of step 7 was found"));
}

TEST_F(ElasticTest, AStartBeyondTheLastStepIsAProtocolError) {
  ReportExit("w1", 1, SIGKILL);
  Say("w0", ReleasedReport(job_, 0));
  v1::RankReport ready = ReadyReport(job_, 0, 2);
  ready.mutable_ready()->set_step(1001);
  Say("w0", ready);
  EXPECT_THAT(Job(job_).cause, HasSubstr("a start after step 1001"));
}

TEST_F(ElasticTest, ACheckpointIsRememberedAndTold) {
  v1::RankReport report = ReadyReport(job_, 0);
  report.mutable_checkpoint()->set_step(1);
  report.mutable_checkpoint()->set_path("out/step-1");
  Say("w0", report);
  ASSERT_TRUE(Job(job_).checkpoint);
  EXPECT_EQ(Job(job_).checkpoint->path, "out/step-1");
  EXPECT_EQ(Entries(v1::JobEvent::kCheckpoint).back().checkpoint().epoch(), 1);
  report.mutable_checkpoint()->set_step(2);
  report.mutable_checkpoint()->set_error("the disk is full");
  Say("w0", report);
  EXPECT_EQ(Job(job_).checkpoint->step, 1);
  EXPECT_THAT(Entries(v1::JobEvent::kCheckpoint), SizeIs(2));
}

TEST_F(ElasticTest, ARestartedCoordinatorSendsTheAssignmentsAgain) {  // F31
  KillRankOne();
  const std::string before = Describe(controller_->state());
  Restart();
  EXPECT_EQ(Describe(controller_->state()), before);
  const Link first = Connect("w0");
  EXPECT_THAT(first->Kinds(), ElementsAre("welcome", "assign"));
  EXPECT_EQ(first->sent[1].assign().restore().step(), 1);
  EXPECT_EQ(first->sent[1].assign().reported_step(), 1);
}

TEST_F(ElasticTest, WhatABrokenStreamLostOfAPlanIsSaidAgain) {
  // A worker that leaves: its job moves.
  Leave("w1");
  EXPECT_EQ(links_.at("w0")->Kinds().back(), "pause");
  EXPECT_EQ(Job(job_).reason, "worker w1 leaves: SIGTERM");
  Disconnect(links_.at("w0"));
  EXPECT_THAT(Connect(HelloWithRank("w0", 0, 1))->Kinds(), ElementsAre("welcome", "pause"));
  Release("w0", 0, 1);
  Release("w1", 1, 1);
  Say("w0", ReadyReport(job_, 0, 2));
  EXPECT_THAT(links_.at("w1")->Kinds(), Not(Contains("shutdown")));
  Say("w2", ReadyReport(job_, 1, 2));
  EXPECT_EQ(links_.at("w1")->Kinds().back(), "shutdown");
  Disconnect(links_.at("w1"));
  EXPECT_EQ(Connect("w1")->Kinds().back(), "shutdown");
  Disconnect(links_.at("w0"));
  EXPECT_THAT(Connect(HelloWithRank("w0", 0, 2))->Kinds(), ElementsAre("welcome", "retain"));
}

TEST_F(ElasticTest, ToLeaveIsAReportAmongOthers) {
  Leave("w0");
  EXPECT_EQ(links_.at("w0")->sent.back().acknowledged(), sequences_["w0"]);
  // What comes after it counts.
  Say("w0", StepReportOf(job_, 0, 2, 3.9));
  EXPECT_EQ(Job(job_).reason, "worker w0 leaves: SIGTERM");
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
}

TEST_F(ElasticTest, RanksThatDoNotPauseInTimeAreAborted) {
  Leave("w1");
  Live(absl::Seconds(29));
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("abort")));
  Live(absl::Seconds(2));
  EXPECT_THAT(links_.at("w0")->Kinds(), Contains("abort"));
  EXPECT_THAT(Job(job_).reason, HasSubstr("the ranks did not stop within 30s"));
}

TEST_F(ElasticTest, AHolderThatSaysNothingIsGivenUp) {  // F33
  Cancel(job_);
  Say("w0", ReleasedReport(job_, 0));
  Say("w1", ReleasedReport(job_, 1));
  const JobId alone = Submit("alone", 1);
  ASSERT_THAT(Job(alone).holders, SizeIs(1));
  const std::string holder = Job(alone).holders[0].worker.value();
  Say("w0", ReadyReport(alone, 0));
  Say("w0", FailedReport(alone, 0, "no luck", -1));
  EXPECT_EQ(links_.at(holder)->Kinds().back(), "report holdings");
  Disconnect(links_.at(holder));
  EXPECT_THAT(Connect(holder)->Kinds(), Contains("report holdings"));
  Say("w0", ReleasedReport(alone, 0));
  Live(absl::Seconds(9));
  EXPECT_EQ(Job(alone).epoch, Epoch(1));
  Live(absl::Seconds(2));
  EXPECT_FALSE(Worker(holder).alive);
  EXPECT_EQ(Job(alone).epoch, Epoch(2));
}

TEST_F(ElasticTest, AHolderThatAnswersIsCounted) {
  Cancel(job_);
  Say("w0", ReleasedReport(job_, 0));
  Say("w1", ReleasedReport(job_, 1));
  const JobId alone = Submit("alone", 1);
  Say("w0", ReadyReport(alone, 0));
  ReportExit("w0", 1, SIGKILL);
  const std::string holder = Job(alone).holders[0].worker.value();
  v1::SessionRequest answer;
  answer.set_sequence(++sequences_[holder]);
  answer.mutable_holdings()->set_job_id(alone.value());
  answer.mutable_holdings()->set_epoch(1);
  *answer.mutable_holdings()->add_holdings() = HoldingOf(1, 1, 0, 7);
  Tell(links_.at(holder), answer);
  EXPECT_EQ(Job(alone).epoch, Epoch(2));
  EXPECT_EQ(Job(alone).restore.step, 7);
}

// F34: after ten times the detection time every rank says where it is, twice.
TEST_F(ElasticTest, AHangNamesRankWorkerStepAndOperation) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Seconds(29));
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("locate")));
  Advance(absl::Milliseconds(1800));
  ASSERT_THAT(links_.at("w0")->Kinds(), Contains("locate"));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, "exchange", /*waiting=*/true, {1});
    Locate("w1", 1, "backward h.3 round 0", /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason,
              HasSubstr("rank 1 on worker w1 hangs after step 1 (backward h.3 round 0)"));
  EXPECT_EQ(links_.at("w0")->Kinds().back(), "abort");
}

TEST_F(ElasticTest, WhomTheOthersMissIsToBlameWhenAllWait) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Milliseconds(30'900));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, "exchange", /*waiting=*/true, {1});
    Locate("w1", 1, "gather h.1", /*waiting=*/true, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_THAT(Job(job_).reason, HasSubstr("the others wait for rank 1 on worker w1"));
}

// Rank 0 waits for one that only waits itself, in another group.
TEST(HangVerdict, WhoOnlyWaitsForAnotherIsNotToBlame) {
  JobRecord job;
  job.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) job.ranks[rank].worker = WorkerId(absl::StrCat("w", rank));
  std::map<int, v1::RankPosition> positions;
  for (int rank = 0; rank < 3; ++rank) {
    positions[rank].set_waiting(true);
    if (rank < 2) positions[rank].add_missing(rank + 1);
  }
  EXPECT_EQ(JudgeHang(job, positions, absl::Seconds(30)).rank, 2);
  // Who has finished works on nothing, and says so by saying nothing.
  job.ranks[2].left = true;
  positions.erase(2);
  positions[1].clear_missing();
  EXPECT_EQ(JudgeHang(job, positions, absl::Seconds(30)).rank, 1);
}

TEST_F(ElasticTest, RanksThatMoveDoNotHang) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Milliseconds(30'900));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, probe == 0 ? "forward h.0" : "forward h.1", /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(ElasticTest, WhatTheCoordinatorSleptThroughIsNoHang) {
  Say("w0", StepReportOf(job_, 0, 2, 3.5));
  Live(absl::Seconds(20));
  Freeze(absl::Seconds(60));
  Live(absl::Seconds(9));
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("locate")));
}

TEST_F(ElasticTest, SlowStepsAreGivenFiveTimesTheirMedian) {
  for (int64_t step = 2; step < 6; ++step) {
    v1::RankReport report = StepReportOf(job_, 0, step, 3.5);
    report.mutable_step()->set_step_ms(20'000);
    Say("w0", report);
    Live(absl::Milliseconds(600));
  }
  Live(absl::Seconds(98));
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("locate")));
  Live(absl::Seconds(3));
  EXPECT_THAT(links_.at("w0")->Kinds(), Contains("locate"));
}

// Its files are written after the last step, which has taken longer than a step may.
TEST_F(ElasticTest, ARankThatHangsAfterTheLastStepIsFound) {
  Say("w0", StepReportOf(job_, 0, 1000, 3.5));
  const absl::Duration writing = StateTime(Job(job_).spec);
  Live(absl::Seconds(119) + writing);
  EXPECT_THAT(links_.at("w0")->Kinds(), Not(Contains("locate")));
  const auto asked = [&] {
    const std::vector<std::string> kinds = links_.at("w0")->Kinds();
    return std::count(kinds.begin(), kinds.end(), "locate");
  };
  const auto await_question = [&] {
    const auto before = asked();
    for (int i = 0; i < 40 && asked() == before; ++i) Live(absl::Milliseconds(100));
    ASSERT_GT(asked(), before);
  };
  await_question();
  // What writes does not hang.
  for (const char* where : {"writing (file operation 7)", "writing (file operation 8)"}) {
    Locate("w0", 0, "writing (file operation 3)", /*waiting=*/true, {1});
    Locate("w1", 1, where, /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Live(absl::Seconds(119) + writing);
  await_question();
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w0", 0, "writing (file operation 3)", /*waiting=*/true, {1});
    Locate("w1", 1, "writing (file operation 8)", /*waiting=*/false, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RECOVERING);
  EXPECT_THAT(Job(job_).reason, HasSubstr("rank 1 on worker w1 hangs"));
  EXPECT_THAT(Job(job_).reason, HasSubstr("writing (file operation 8)"));
}

// The output is there: whoever does not come to its end is not waited for.
TEST_F(ElasticTest, ARankThatHangsWhenAnotherHasFinishedHoldsNoJobUp) {
  Say("w0", StepReportOf(job_, 0, 1000, 3.5));
  Say("w0", FinishedReport(job_, 0));
  Live(absl::Milliseconds(120'600) + StateTime(Job(job_).spec));
  for (int probe = 0; probe < 2; ++probe) {
    Locate("w1", 1, "writing (file operation 8)", /*waiting=*/true, {});
    Advance(absl::Milliseconds(500));
  }
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ElasticTest, MetricsTellWhatADeathCost) {
  Live(absl::Milliseconds(900));
  KillRankOne();
  Say("w0", ReadyReport(job_, 0, 2));
  Say("w2", ReadyReport(job_, 1, 2));
  v1::RankReport step = StepReportOf(job_, 0, 2, 3.5, 2);
  step.mutable_step()->set_step_ms(500);
  Say("w0", step);
  v1::RankReport saved = ReadyReport(job_, 0, 2);
  saved.mutable_checkpoint()->set_step(2);
  saved.mutable_checkpoint()->set_path("out/step-2");
  saved.mutable_checkpoint()->set_seconds(0.3);
  Say("w0", saved);
  Live(absl::Milliseconds(600));
  const std::string text = prometheus::TextSerializer().Serialize(registry_->Collect());
  for (const char* line :
       {"sherd_job_restarts_total{reason=\"death\"} 1", "sherd_job_step{job=\"tiny-1\"} 2",
        "sherd_recovery_seconds_count{phase=\"restore\"} 1", "sherd_job_copies{job=\"tiny-1\"} 1",
        "sherd_job_wanted_copies{job=\"tiny-1\"} 1", "sherd_checkpoint_seconds_count 1",
        "sherd_job_checkpoint_age_seconds{job=\"tiny-1\"} 0.6",
        "sherd_job_goodput_ratio{job=\"tiny-1\"} 0.3"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(ElasticTest, DrainIsAnsweredOnceAndForAll) {
  const auto drain = [&](const std::string& worker) {
    absl::StatusOr<v1::DrainResponse> answer = absl::UnknownError("no answer");
    controller_->jobs().Drain(WorkerId(worker), [&](absl::StatusOr<v1::DrainResponse> response) {
      answer = std::move(response);
    });
    EndTurn();
    return answer;
  };
  EXPECT_EQ(drain("nobody").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(drain("w2")->worker().status(), "draining");
  EXPECT_EQ(links_.at("w2")->Kinds().back(), "shutdown");
  const size_t sent = links_.at("w2")->sent.size();
  EXPECT_TRUE(drain("w2").ok());
  EXPECT_THAT(links_.at("w2")->sent, SizeIs(sent));
  ReportExit("w2", 1, 0, 0);
  EXPECT_EQ(drain("w2").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
}

TEST_F(ElasticTest, AProcessThatComesBackIsHeardAsLongAsTheNextEpochIsNotPlanned) {  // F24
  // w1 freezes; w0 has lost the shard of rank 1.
  Live(absl::Milliseconds(300));
  for (int i = 0; i < 12; ++i) {
    Advance(absl::Milliseconds(300));
    Heartbeat(links_.at("w0"));
    Heartbeat(links_.at("w2"));
  }
  ASSERT_FALSE(Worker("w1").alive);
  Connect(HelloWithRank("w1", 1, 1));
  EXPECT_THAT(links_.at("w1")->Kinds(), ElementsAre("welcome", "abort"));
  Release("w1", 1, 1);
  EXPECT_TRUE(Job(job_).answers.contains(WorkerId("w1")));
  EXPECT_EQ(Job(job_).epoch, Epoch(1));
  Say("w0", ReleasedReport(job_, 0));
  EXPECT_EQ(Job(job_).epoch, Epoch(2));
  EXPECT_EQ(Job(job_).restore.step, 1);
}

}  // namespace
}  // namespace sherd
