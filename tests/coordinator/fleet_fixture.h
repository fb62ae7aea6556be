// A coordinator with two workers and a job on both.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/controller_fixture.h"

namespace sherd {

class FleetTest : public ControllerTest {
 protected:
  // Two workers, and a job on both that runs.
  void SetUp() override {
    first_ = Connect("w0");
    second_ = Connect("w1");
    job_ = Submit("request", 2);
    Report(first_, 1, ReadyReport(job_, 0));
    Report(second_, 1, ReadyReport(job_, 1));
    ASSERT_EQ(Job(job_).state, v1::JOB_STATE_RUNNING);
  }

  // Heartbeats of both until `duration` has passed.
  void Live(absl::Duration duration, const std::vector<std::shared_ptr<RecordingLink>>& links) {
    for (absl::Duration passed; passed < duration; passed += absl::Milliseconds(300)) {
      Advance(absl::Milliseconds(300));
      for (const std::shared_ptr<RecordingLink>& link : links) Heartbeat(link);
    }
  }

  v1::Hello HelloWithRank(const std::string& worker, int rank) {
    v1::Hello hello = HelloOf(worker, 1);
    hello.set_job_id(job_.value());
    hello.set_epoch(1);
    hello.set_rank(rank);
    return hello;
  }

  std::shared_ptr<RecordingLink> first_;
  std::shared_ptr<RecordingLink> second_;
  JobId job_;
};

}  // namespace sherd
