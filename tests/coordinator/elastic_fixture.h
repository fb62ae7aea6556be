// A coordinator with a job of two ranks that goes on when one of them dies.
#pragma once

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/controller_fixture.h"

namespace sherd {

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
              const std::vector<int>& missing, int64_t question = 0) {
    v1::SessionRequest request;
    v1::RankPosition& position = *request.mutable_position();
    position.set_job_id(job_.value());
    position.set_epoch(1);
    position.set_rank(rank);
    position.set_step(1);
    position.set_operation(operation);
    position.set_waiting(waiting);
    position.set_question(question);
    for (const int other : missing) position.add_missing(other);
    Tell(links_.at(worker), request);
  }

  std::map<std::string, uint64_t> sequences_;
  JobId job_;
};

}  // namespace sherd
