// What workers tell of measurements, and what users see meanwhile.

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/controller_fixture.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

class TrialReports : public ControllerTest {
 protected:
  void SetUp() override {
    link_ = Connect("w0");
    v1::SubmitRequest request;
    request.set_request_id("a request");
    *request.mutable_spec() = MakeSpec({.max_workers = 1, .is_auto = true});
    request.mutable_spec()->mutable_parallel()->set_tensor(1);
    request.mutable_spec()->mutable_train()->set_micro_batch(0);
    job_ = Submit(request);
  }

  v1::RankReport FinishedWith(const v1::TrialReport& trial, int64_t epoch) {
    v1::RankReport report = FinishedReport(job_, 0);
    report.set_epoch(epoch);
    *report.mutable_finished()->mutable_trial() = trial;
    return report;
  }

  v1::Job View() {
    v1::Job view;
    controller_->jobs().GetJob(job_, [&](absl::StatusOr<v1::GetJobResponse> response) {
      ASSERT_TRUE(response.ok());
      view = response->job();
    });
    EndTurn();
    return view;
  }

  std::shared_ptr<RecordingLink> link_;
  JobId job_;
};

TEST_F(TrialReports, UsersSeeWhatWasAskedUntilItIsDecided) {
  ASSERT_TRUE(link_->sent.back().has_assign());
  EXPECT_TRUE(link_->sent.back().assign().has_trial());
  EXPECT_EQ(View().spec().parallel().strategy(), v1::STRATEGY_AUTO);
  EXPECT_EQ(View().spec().train().micro_batch(), 0);
  EXPECT_FALSE(View().has_decision());
  uint64_t sequence = 0;
  v1::TrialReport trial;
  trial.set_matmul_flops_per_second(1e9);
  trial.set_step_seconds(0.5);
  while (IsUndecided(Job(job_)) && sequence < 60) {
    const int64_t epoch = Job(job_).epoch.value();
    Report(link_, ++sequence, ReadyReport(job_, 0, epoch));
    Report(link_, ++sequence, FinishedWith(trial, epoch));
  }
  const v1::Job view = View();
  ASSERT_TRUE(view.has_decision());
  EXPECT_EQ(view.spec().parallel().strategy(), v1::STRATEGY_DDP);
  EXPECT_EQ(view.spec().train().micro_batch(), view.decision().chosen().micro_batch());
  EXPECT_EQ(view.last_event(), std::ssize(Feed(job_)));
  EXPECT_EQ(view.step(), 0);
  // The log has all of it.
  Restart();
  EXPECT_EQ(View().decision().DebugString(), view.decision().DebugString());
}

TEST_F(TrialReports, AStepOfAMeasurementIsAProtocolError) {
  Report(link_, 1, ReadyReport(job_, 0));
  Report(link_, 2, StepReportOf(job_, 0, 1, 2.5));
  EXPECT_THAT(Job(job_).reason, HasSubstr("it reported a step and was to measure"));
  for (const v1::JobEvent& event : Feed(job_)) EXPECT_FALSE(event.has_step());
}

TEST_F(TrialReports, WhatNoProbeAsksForIsAProtocolError) {
  Report(link_, 1, ReadyReport(job_, 0));
  v1::TrialReport trial;
  trial.add_collectives()->set_op("broadcast\n");
  Report(link_, 2, FinishedWith(trial, 1));
  EXPECT_THAT(Job(job_).reason, HasSubstr("other operations, than a probe asks for"));
}

// A coordinator that returns in the middle goes on with the measurement that was under way.
TEST_F(TrialReports, ACoordinatorThatReturnsTellsWhoMissedIt) {
  Restart();
  const std::shared_ptr<RecordingLink> link = Connect("w0");
  ASSERT_TRUE(link->sent.back().has_assign());
  EXPECT_EQ(link->sent.back().assign().trial().number(), 1);
}

}  // namespace
}  // namespace sherd
