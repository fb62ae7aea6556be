// Steps that rank 0 did not live to tell of: those that finish do (RankFinished.last_steps).

#include <csignal>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/controller_fixture.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LastStepsTest : public ControllerTest {
 protected:
  // Two ranks of a job of five steps, of which the feed has three.
  void SetUp() override {
    for (const char* worker : {"w0", "w1"}) Connect(worker);
    v1::SubmitRequest request = RequestOf("request", 2);
    request.mutable_spec()->mutable_train()->set_steps(5);
    job_ = Submit(request);
    Say("w0", ReadyReport(job_, 0));
    Say("w1", ReadyReport(job_, 1));
    for (int64_t step = 1; step <= 3; ++step) Say("w0", StepReportOf(job_, 0, step, 4.0));
  }

  void Say(const std::string& worker, const v1::RankReport& report) {
    Report(links_.at(worker), ++sequences_[worker], report);
  }

  v1::RankReport Finished(int rank, const std::vector<int64_t>& last_steps) {
    v1::RankReport report = FinishedReport(job_, rank);
    report.mutable_finished()->set_steps(5);
    for (const int64_t step : last_steps) {
      v1::StepReport& last = *report.mutable_finished()->add_last_steps();
      last.set_step(step);
      last.set_loss(static_cast<double>(step));
    }
    return report;
  }

  // What the feed says of steps and of the end, in order.
  std::vector<std::string> Told() {
    std::vector<std::string> told;
    for (const v1::JobEvent& entry : Feed(job_)) {
      if (entry.has_step()) told.push_back(std::to_string(entry.step().step()));
      if (entry.has_done()) told.push_back("done after " + std::to_string(entry.done().steps()));
    }
    return told;
  }

  std::map<std::string, uint64_t> sequences_;
  JobId job_;
};

TEST_F(LastStepsTest, WhatADeadRankZeroDidNotTellIsToldByOthers) {
  Say("w1", Finished(1, {2, 3, 4, 5}));
  ReportExit("w0", 1, SIGKILL);
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(Told(), ElementsAre("1", "2", "3", "4", "5", "done after 5"));
  for (const v1::JobEvent& entry : Feed(job_)) {
    if (!entry.has_step() || entry.step().step() < 4) continue;
    EXPECT_EQ(entry.step().loss(), static_cast<double>(entry.step().step()));
    EXPECT_EQ(entry.step().epoch(), 1);
  }
}

TEST_F(LastStepsTest, ALivingRankZeroThatIsLateTellsNothingTwice) {
  Say("w1", Finished(1, {4, 5}));
  Say("w0", StepReportOf(job_, 0, 4, 4.0));
  Say("w0", StepReportOf(job_, 0, 5, 4.0));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  Say("w0", Finished(0, {4, 5}));
  EXPECT_EQ(Job(job_).state, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(Told(), ElementsAre("1", "2", "3", "4", "5", "done after 5"));
}

TEST_F(LastStepsTest, ACoordinatorThatReturnsKnowsThem) {
  Say("w1", Finished(1, {4, 5}));
  Restart();
  ReportExit("w0", 1, SIGKILL);
  EXPECT_THAT(Told(), ElementsAre("1", "2", "3", "4", "5", "done after 5"));
}

TEST_F(LastStepsTest, StepsOutOfOrderAreAProtocolError) {
  Say("w1", Finished(1, {5, 4}));
  EXPECT_THAT(Job(job_).cause, HasSubstr("its last steps have step 4 after step 5"));
  EXPECT_THAT(Told(), ElementsAre("1", "2", "3"));
}

TEST_F(LastStepsTest, StepsBehindTheEndAreAProtocolError) {
  Say("w1", Finished(1, {5, 6}));
  EXPECT_THAT(Job(job_).cause, HasSubstr("its last steps have step 6 after step 5"));
}

}  // namespace
}  // namespace sherd
