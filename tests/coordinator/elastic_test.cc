// A job that survives, as workers and watchers hear of it.

#include <csignal>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "tests/coordinator/elastic_fixture.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

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
  const auto first = Connect("w0");
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

// Found by the simulation: it was away when the epoch restored, and came back when that one was
// over.
TEST_F(ElasticTest, WhatAnEpochMadeUselessIsSaidAlsoWhenTheNextOneForms) {
  KillRankOne();
  Say("w0", ReadyReport(job_, 0, 2));
  Say("w2", ReadyReport(job_, 1, 2));
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Connect("w3");
  ReportExit("w2", 1, SIGKILL);
  Release("w0", 0, 1, 2);
  ASSERT_EQ(Job(job_).state, v1::JOB_STATE_FORMING);
  Disconnect(links_.at("w0"));
  const auto back = Connect(HelloWithRank("w0", 0, 3));
  ASSERT_THAT(back->Kinds(), ElementsAre("welcome", "retain"));
  EXPECT_EQ(back->sent.back().retain().epoch(), 2);
  EXPECT_FALSE(back->sent.back().retain().ended());
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
  // Nor do they say where they are.
  Live(absl::Seconds(5));
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
