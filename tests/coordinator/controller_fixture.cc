#include "tests/coordinator/controller_fixture.h"

#include <algorithm>
#include <utility>

#include "plan/job_spec.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

v1::RankReport Report(const JobId& job, int rank, int64_t epoch) {
  v1::RankReport report;
  report.set_job_id(job.value());
  report.set_epoch(epoch);
  report.set_rank(rank);
  return report;
}

}  // namespace

v1::RankReport ReadyReport(const JobId& job, int rank, int64_t epoch) {
  v1::RankReport report = Report(job, rank, epoch);
  report.mutable_ready();
  return report;
}

v1::RankReport StepReportOf(const JobId& job, int rank, int64_t step, double loss, int64_t epoch) {
  v1::RankReport report = Report(job, rank, epoch);
  report.mutable_step()->set_step(step);
  report.mutable_step()->set_loss(loss);
  return report;
}

v1::RankReport FinishedReport(const JobId& job, int rank) {
  v1::RankReport report = Report(job, rank, 1);
  report.mutable_finished();
  return report;
}

v1::RankReport FailedReport(const JobId& job, int rank, const std::string& error, int lost_peer) {
  v1::RankReport report = Report(job, rank, 1);
  report.mutable_failed()->set_error(error);
  report.mutable_failed()->set_lost_peer(lost_peer);
  return report;
}

v1::RankReport ReleasedReport(const JobId& job, int rank, int64_t epoch) {
  v1::RankReport report = Report(job, rank, epoch);
  report.mutable_released();
  return report;
}

v1::Holding HoldingOf(int64_t epoch, int world, int owner, int64_t step) {
  v1::Holding held;
  held.set_epoch(epoch);
  held.set_world(world);
  held.set_owner(owner);
  held.set_step(step);
  return held;
}

ControllerTest::ControllerTest() : log_(*EventLog::Open(":memory:")) { Restart(); }

void ControllerTest::Restart() {
  links_.clear();
  controller_.reset();
  registry_ = std::make_shared<prometheus::Registry>();
  metrics_ = std::make_unique<CoordinatorMetrics>(*registry_);
  controller_ = std::make_unique<Controller>(
      options_, clock_, *log_,
      [life = lives_++](int bytes) { return std::string(bytes, static_cast<char>('s' + life)); },
      *metrics_);
  const absl::Status status = controller_->Recover();
  ASSERT_TRUE(status.ok()) << status;
  controller_->BeginTurn();
  EndTurn();
}

void ControllerTest::EndTurn() {
  const absl::Status status = controller_->EndTurn();
  ASSERT_TRUE(status.ok()) << status;
}

void ControllerTest::Advance(absl::Duration duration) {
  const absl::Time end = clock_.Now() + duration;
  while (clock_.Now() < end) {
    const absl::Time next = std::min(end, controller_->NextDeadline());
    clock_.Advance(std::max(absl::Milliseconds(1), next - clock_.Now()));
    controller_->BeginTurn();
    EndTurn();
  }
}

void ControllerTest::Wake(absl::Duration duration) {
  clock_.Advance(duration);
  controller_->BeginTurn();
}

void ControllerTest::Freeze(absl::Duration duration) {
  Wake(duration);
  EndTurn();
}

v1::Hello ControllerTest::HelloOf(const std::string& worker, uint64_t incarnation) {
  v1::Hello hello;
  hello.set_worker_id(worker);
  hello.set_incarnation(incarnation);
  hello.set_device("cpu:0");
  hello.set_host("host");
  hello.set_shared_memory_domain("host/0");
  hello.set_data_address("unix-abstract:" + worker);
  hello.set_numerics_fingerprint("avx2");
  return hello;
}

std::shared_ptr<RecordingLink> ControllerTest::Connect(const v1::Hello& hello) {
  auto link = std::make_shared<RecordingLink>();
  links_[hello.worker_id()] = link;
  controller_->fleet().Connect(hello, link);
  EndTurn();
  return link;
}

void ControllerTest::Disconnect(const std::shared_ptr<RecordingLink>& link) {
  controller_->fleet().Disconnect(link.get());
  EndTurn();
}

void ControllerTest::Heartbeat(const std::shared_ptr<RecordingLink>& link) {
  v1::SessionRequest request;
  request.mutable_heartbeat();
  controller_->fleet().Receive(link.get(), request);
}

void ControllerTest::Tell(const std::shared_ptr<RecordingLink>& link,
                          const v1::SessionRequest& request) {
  controller_->fleet().Receive(link.get(), request);
  EndTurn();
}

void ControllerTest::Report(const std::shared_ptr<RecordingLink>& link, uint64_t sequence,
                            const v1::RankReport& report) {
  v1::SessionRequest request;
  request.set_sequence(sequence);
  *request.mutable_report() = report;
  controller_->fleet().Receive(link.get(), request);
  EndTurn();
}

void ControllerTest::ReportExit(const std::string& worker, uint64_t incarnation, int signal,
                                int code) {
  v1::ReportExitRequest request;
  request.set_worker_id(worker);
  request.set_incarnation(incarnation);
  request.set_signal(signal);
  request.set_exit_code(code);
  controller_->fleet().ReportExit(request);
  EndTurn();
}

v1::SubmitRequest ControllerTest::RequestOf(const std::string& request_id, int64_t workers) {
  v1::SubmitRequest request;
  request.set_request_id(request_id);
  v1::JobSpec spec = MakeSpec({.min_workers = workers, .max_workers = workers});
  spec.mutable_model()->set_preset("gpt2-124m");
  spec.mutable_train()->set_steps(1000);
  *request.mutable_spec() = NormalizeJobSpec(spec);
  request.mutable_spec()->clear_checkpoint();
  return request;
}

JobId ControllerTest::Submit(const std::string& request_id, int64_t workers) {
  return Submit(RequestOf(request_id, workers));
}

JobId ControllerTest::Submit(const v1::SubmitRequest& request) {
  JobId id;
  controller_->jobs().Submit(request, [&id](absl::StatusOr<v1::SubmitResponse> response) {
    ASSERT_TRUE(response.ok()) << response.status();
    id = JobId(response->job().id());
  });
  EndTurn();
  for (const auto& [worker, link] : links_) {
    if (link->sent.empty() || !link->sent.back().has_inspect_data()) continue;
    v1::SessionRequest answer;
    answer.mutable_inspection()->set_request_id(link->sent.back().inspect_data().request_id());
    controller_->fleet().Receive(link.get(), answer);
    EndTurn();
  }
  EXPECT_NE(id, JobId()) << "no answer to Submit";
  return id;
}

void ControllerTest::Cancel(const JobId& id) {
  controller_->jobs().Cancel(id, [](absl::StatusOr<v1::CancelResponse>) {});
  EndTurn();
}

std::vector<v1::JobEvent> ControllerTest::Feed(const JobId& id, int64_t after) {
  return *log_->ReadFeed(id, after, 1 << 20);
}

}  // namespace sherd
