#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/runtime/controller.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "sherd/v1/job_service.pb.h"
#include "tests/coordinator/manual_clock.h"
#include "tests/coordinator/recording_link.h"

namespace sherd {

// A controller with a manual clock, workers that are recordings, and a log that outlives it.
class ControllerTest : public testing::Test {
 protected:
  ControllerTest();

  // Ends the coordinator's life and begins another on the same log; streams break without a word.
  void Restart();
  void EndTurn();
  // Lets time pass as the event loop does: in turns.
  void Advance(absl::Duration duration);
  // The same, while the coordinator itself does not run.
  void Freeze(absl::Duration duration);
  // The same; the turn in which it wakes has yet to end.
  void Wake(absl::Duration duration);

  static v1::Hello HelloOf(const std::string& worker, uint64_t incarnation);
  // A worker's stream, opened with `hello` and one turn.
  std::shared_ptr<RecordingLink> Connect(const v1::Hello& hello);
  std::shared_ptr<RecordingLink> Connect(const std::string& worker, uint64_t incarnation = 1) {
    return Connect(HelloOf(worker, incarnation));
  }
  void Disconnect(const std::shared_ptr<RecordingLink>& link);
  void Heartbeat(const std::shared_ptr<RecordingLink>& link);
  // Any message; a turn.
  void Tell(const std::shared_ptr<RecordingLink>& link, const v1::SessionRequest& request);
  // A report with the number `sequence`; a turn.
  void Report(const std::shared_ptr<RecordingLink>& link, uint64_t sequence,
              const v1::RankReport& report);
  // By questions where its rank is, each as often as the worker was sent it.
  std::map<int64_t, int> QuestionsTo(const std::string& worker) const {
    std::map<int64_t, int> questions;
    for (const v1::SessionResponse& message : links_.at(worker)->sent) {
      if (message.has_locate()) ++questions[message.locate().question()];
    }
    return questions;
  }
  int64_t TimesAsked(const std::string& worker) const {
    return static_cast<int64_t>(QuestionsTo(worker).size());
  }
  void ReportExit(const std::string& worker, uint64_t incarnation, int signal, int code = 0);

  static v1::SubmitRequest RequestOf(const std::string& request_id, int64_t workers);
  // Submits, and answers the inspection when a worker is asked.
  JobId Submit(const v1::SubmitRequest& request);
  // Submits, and answers the inspection when a worker is asked.
  JobId Submit(const std::string& request_id, int64_t workers);
  void Cancel(const JobId& id);
  const JobRecord& Job(const JobId& id) { return *FindJob(controller_->state(), id); }
  const WorkerState& Worker(const std::string& id) {
    return *FindWorker(controller_->state(), WorkerId(id));
  }
  std::vector<v1::JobEvent> Feed(const JobId& id, int64_t after = 0);

  ControllerOptions options_;
  ManualClock clock_;
  int lives_ = 0;
  std::unique_ptr<EventLog> log_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<CoordinatorMetrics> metrics_;
  std::unique_ptr<Controller> controller_;
  // Open streams by worker.
  std::map<std::string, std::shared_ptr<RecordingLink>> links_;
};

v1::RankReport ReadyReport(const JobId& job, int rank, int64_t epoch = 1);
v1::RankReport StepReportOf(const JobId& job, int rank, int64_t step, double loss,
                            int64_t epoch = 1);
v1::RankReport FinishedReport(const JobId& job, int rank);
v1::RankReport FailedReport(const JobId& job, int rank, const std::string& error, int lost_peer);
v1::RankReport ReleasedReport(const JobId& job, int rank, int64_t epoch = 1);
v1::Holding HoldingOf(int64_t epoch, int world, int owner, int64_t step);

}  // namespace sherd
