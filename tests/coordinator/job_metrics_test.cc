// What the series of a job say when it loses steps and trains them again.

#include "coordinator/runtime/job_metrics.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;

class JobMetricsTest : public testing::Test {
 protected:
  JobMetricsTest() {
    job_.id = JobId("tiny-1");
    job_.state = v1::JOB_STATE_RUNNING;
    v1::JobEvent running = Event();
    running.mutable_state()->set_state(v1::JOB_STATE_RUNNING);
    metrics_.Observe(running);
  }

  v1::JobEvent Event() const {
    v1::JobEvent event;
    event.set_job_id("tiny-1");
    event.set_time_unix_ms(absl::ToUnixMillis(start_));
    return event;
  }

  // Of a second each.
  void Train(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      v1::JobEvent event = Event();
      event.mutable_step()->set_step(step);
      event.mutable_step()->set_step_ms(1000);
      Tell(std::move(event));
    }
  }

  void RollBack(int64_t from, int64_t to) {
    v1::JobEvent event = Event();
    event.mutable_rollback()->set_from_step(from);
    event.mutable_rollback()->set_to_step(to);
    Tell(std::move(event));
  }

  void Tell(v1::JobEvent event) {
    metrics_.Observe(event);
    feed_.Add(std::move(event));
  }

  // So long after the job began.
  std::string Series(absl::Duration later) {
    metrics_.Update(job_, feed_.ProgressOf(job_.id), start_ + later);
    return prometheus::TextSerializer().Serialize(registry_->Collect());
  }

  const absl::Time start_ = absl::FromUnixSeconds(1'000'000);
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  JobMetrics metrics_{*registry_};
  JobFeed feed_;
  JobRecord job_;
};

TEST_F(JobMetricsTest, StepsThatAreTrainedAgainCountOnce) {
  Train(1, 40);
  RollBack(40, 10);
  std::string series = Series(absl::Seconds(50));
  EXPECT_THAT(series, HasSubstr("sherd_job_step{job=\"tiny-1\"} 10\n"));
  EXPECT_THAT(series, HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 0.2\n"));
  EXPECT_THAT(series, HasSubstr("sherd_rolled_back_steps_total 30\n"));
  Train(11, 40);
  series = Series(absl::Seconds(80));
  EXPECT_THAT(series, HasSubstr("sherd_job_step{job=\"tiny-1\"} 40\n"));
  EXPECT_THAT(series, HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 0.5\n"));
}

// The coordinator came back in the middle of the job: it has not seen the steps before.
TEST_F(JobMetricsTest, WhatWasLostIsAllThatThisLifeSaw) {
  Train(1001, 1100);
  RollBack(1100, 1000);
  EXPECT_THAT(Series(absl::Seconds(100)), HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 0\n"));
  Train(1001, 1050);
  EXPECT_THAT(Series(absl::Seconds(100)),
              HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 0.5\n"));
  RollBack(1050, 0);
  EXPECT_THAT(Series(absl::Seconds(100)), HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 0\n"));
}

TEST_F(JobMetricsTest, OfManyStepsTheTimeIsStillKnown) {
  Train(1, 100'000);
  RollBack(100'000, 50'001);
  EXPECT_THAT(Series(absl::Seconds(50'001)),
              HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 1\n"));
  RollBack(50'001, 10'000);
  EXPECT_THAT(Series(absl::Seconds(20'000)),
              HasSubstr("sherd_job_goodput_ratio{job=\"tiny-1\"} 0.5\n"));
}

}  // namespace
}  // namespace sherd
