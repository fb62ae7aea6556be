#include "worker/agent/agent.h"

#include <malloc.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "worker/agent/monotonic.h"

namespace sherd {
namespace {

// Deadlines that another thread sets are seen after this long at the latest.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

TrainerEnded EventOf(TrainResult result) {
  return {std::move(result.status),
          result.paused,
          result.final,
          result.step,
          std::move(result.operation),
          result.lost_peer,
          std::move(result.lost_holder),
          std::move(result.weights_path),
          std::move(result.last_steps),
          std::move(result.trial)};
}

}  // namespace

// Turns what one rank tells into reports of its epoch.
class Agent::RankObserver final : public TrainObserver {
 public:
  RankObserver(Agent& agent, const v1::Assignment& assignment) : agent_(agent) {
    stamp_.set_job_id(assignment.job_id());
    stamp_.set_epoch(assignment.epoch());
    stamp_.set_rank(assignment.rank());
  }

  // Not by way of the agent's events, where steps would overtake it. Nobody listens to an epoch
  // that has been aborted.
  void OnReady(const v1::RankReady& ready) override {
    v1::RankReport report = stamp_;
    *report.mutable_ready() = ready;
    Send(std::move(report));
  }
  void OnStep(const v1::StepReport& step) override {
    v1::RankReport report = stamp_;
    *report.mutable_step() = step;
    Send(std::move(report));
  }
  void OnEval(const v1::EvalReport& eval) override {
    v1::RankReport report = stamp_;
    *report.mutable_eval() = eval;
    Send(std::move(report));
  }
  void OnLedger(const v1::RankLedger& ledger) override {
    v1::RankReport report = stamp_;
    *report.mutable_ledger() = ledger;
    Send(std::move(report));
  }
  void OnWarning(const v1::Warning& warning) override {
    v1::RankReport report = stamp_;
    *report.mutable_warning() = warning;
    Send(std::move(report));
  }
  void OnCheckpoint(const v1::CheckpointReport& checkpoint) override {
    v1::RankReport report = stamp_;
    *report.mutable_checkpoint() = checkpoint;
    Send(std::move(report));
  }
  void OnLog(absl::string_view text) override {
    Log(Severity::kInfo,
        absl::StrCat("job ", stamp_.job_id(), ", rank ", stamp_.rank(), ": ", text));
    v1::RankReport report = stamp_;
    report.mutable_log()->set_rank(stamp_.rank());
    report.mutable_log()->set_text(std::string(text));
    Send(std::move(report));
  }

 private:
  void Send(v1::RankReport report) {
    if (!agent_.session_.Send(std::move(report))) agent_.metrics_.ReportDropped();
  }

  Agent& agent_;
  v1::RankReport stamp_;
};

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      metrics_(*options_.metrics),
      session_(options_.session, *this),
      inspector_(options_.inspect,
                 [this](v1::DataInspection inspection) { session_.Send(std::move(inspection)); }) {}

Agent::~Agent() {
  // The session first: its thread calls into the inspector and the agent.
  session_.Stop();
  if (trainer_thread_.joinable()) trainer_thread_.join();
}

int Agent::Run() {
  session_.Start();
  while (!exit_code_.has_value()) {
    AgentEvent event = NextEvent();
    if (std::holds_alternative<TrainerEnded>(event)) ReapTrainer();
    std::vector<AgentAction> actions = state_.Handle(event);
    ShowState();
    for (AgentAction& action : actions) {
      std::visit([this](auto& chosen) { Perform(chosen); }, action);
    }
  }
  session_.Flush(options_.flush_limit);
  session_.Stop();
  return *exit_code_;
}

void Agent::RequestStop(absl::string_view reason) {
  Post(StopRequested{kExitAsked, std::string(reason)});
}

void Agent::Post(AgentEvent event) {
  absl::MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
}

void Agent::RequestLeave(absl::string_view reason) {
  {
    absl::MutexLock lock(&mutex_);
    const bool alone = !rank_.has_value() && !session_.connected();
    if (!alone) {
      leaving_ = std::string(reason);
      leave_deadline_ = MonotonicNow() + options_.leave_limit;
    }
    if (alone) {
      events_.push_back(StopRequested{kExitAsked, std::string(reason)});
      return;
    }
  }
  Log(Severity::kInfo, absl::StrCat("asks to leave: ", reason));
  v1::Leaving leaving;
  leaving.set_reason(std::string(reason));
  session_.Send(std::move(leaving));
}

AgentEvent Agent::NextEvent() {
  absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !events_.empty(); };
  // The wall clock may jump, and deadlines be set meanwhile.
  while (true) {
    const absl::Duration now = MonotonicNow();
    if (!events_.empty()) break;
    if (now >= abort_deadline_) {
      abort_deadline_ = absl::InfiniteDuration();
      return AbortOverdue{};
    }
    if (now >= leave_deadline_) {
      leave_deadline_ = absl::InfiniteDuration();
      return StopRequested{kExitAsked, absl::StrCat(leaving_, ", and nobody let it go in time")};
    }
    await_.Await(mutex_, absl::Condition(&due),
                 std::min({abort_deadline_ - now, leave_deadline_ - now, kLongestWait}));
  }
  AgentEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void Agent::Perform(StartTrainer& action) {
  Log(Severity::kInfo,
      absl::StrCat("job ", action.assignment.job_id(), ", epoch ", action.assignment.epoch(),
                   ": rank ", action.assignment.rank(), " of ", action.assignment.world()));
  observer_ = std::make_unique<RankObserver>(*this, action.assignment);
  trainer_ = options_.make_trainer(action.assignment);
  trainer_thread_ = std::thread([this, trainer = trainer_.get(), observer = observer_.get()] {
    Post(EventOf(trainer->Run(*observer)));
  });
}

void Agent::Perform(AbortTrainer& action) {
  Log(Severity::kInfo, absl::StrCat("aborting: ", action.reason));
  abort_deadline_ = MonotonicNow() + options_.abort_limit;
  trainer_->Abort(action.reason);
}

void Agent::Perform(PauseTrainer&) { trainer_->Pause(); }

void Agent::Perform(TellPosition& action) {
  const TrainPosition now = trainer_->Position();
  v1::RankPosition position;
  position.set_job_id(action.id.job.value());
  position.set_epoch(action.id.epoch.value());
  position.set_rank(action.id.rank);
  position.set_step(now.step);
  position.set_operation(now.operation);
  position.set_waiting(now.waiting);
  position.set_copied_bytes(now.copied_bytes);
  position.set_question(action.question);
  position.mutable_missing()->Add(now.missing.begin(), now.missing.end());
  session_.Send(std::move(position));
}

void Agent::Perform(Report& action) {
  if (action.report.has_released()) {
    for (v1::Holding& held :
         options_.holdings->Seal(action.report.job_id(), action.report.epoch())) {
      *action.report.mutable_released()->add_holdings() = std::move(held);
    }
  }
  if (action.report.has_failed()) {
    Log(Severity::kError,
        absl::StrCat("job ", action.report.job_id(), ", rank ", action.report.rank(),
                     " failed: ", action.report.failed().error()));
  }
  session_.Send(std::move(action.report));
}

void Agent::Perform(ExitProcess& action) {
  Log(action.code == kExitAsked ? Severity::kInfo : Severity::kError,
      absl::StrCat("leaving: ", action.reason));
  exit_code_ = action.code;
}

void Agent::ReapTrainer() {
  abort_deadline_ = absl::InfiniteDuration();
  trainer_thread_.join();
  trainer_.reset();
  observer_.reset();
  // A job leaves holes behind that glibc would keep; the next job's layout is another one.
  malloc_trim(0);
}

void Agent::ShowState() {
  metrics_.State(state_.phase());
  absl::MutexLock lock(&mutex_);
  rank_ = state_.rank();
}

v1::Hello Agent::MakeHello() {
  v1::Hello hello = options_.identity;
  absl::MutexLock lock(&mutex_);
  if (rank_.has_value()) {
    hello.set_job_id(rank_->job.value());
    hello.set_epoch(rank_->epoch.value());
    hello.set_rank(rank_->rank);
  }
  return hello;
}

void Agent::OnConnected() {
  metrics_.Connected();
  options_.on_registered(true);
}
void Agent::OnDisconnected() {
  metrics_.Disconnected();
  options_.on_registered(false);
}
void Agent::OnAssign(v1::Assignment assignment) { Post(AssignReceived{std::move(assignment)}); }
void Agent::OnAbort(v1::Abort abort) { Post(AbortReceived{std::move(abort)}); }
void Agent::OnInspect(v1::InspectData request) { inspector_.Inspect(std::move(request)); }
void Agent::OnShutdown(v1::Shutdown shutdown) {
  Post(StopRequested{kExitAsked, absl::StrCat("the coordinator says: ", shutdown.reason()),
                     /*exit_code_at_work=*/kExitStuck});
}
void Agent::OnReportHoldings(v1::ReportHoldings request) {
  v1::HoldingsReport report;
  report.set_job_id(request.job_id());
  report.set_epoch(request.epoch());
  for (v1::Holding& held : options_.holdings->Seal(request.job_id(), request.epoch())) {
    *report.add_holdings() = std::move(held);
  }
  session_.Send(std::move(report));
}
void Agent::OnRetain(v1::Retain retain) {
  if (retain.ended()) return options_.holdings->Forget(retain.job_id());
  options_.holdings->Retain(retain.job_id(), retain.epoch());
}
void Agent::OnPause(v1::Pause pause) { Post(PauseReceived{std::move(pause)}); }
void Agent::OnLocate(v1::LocateRank request) { Post(LocateReceived{std::move(request)}); }
void Agent::OnHold(v1::Hold hold) { options_.holdings->Expect(hold); }
void Agent::OnEnded(absl::Status why) {
  Post(StopRequested{kExitRefused, std::string(why.message())});
}

}  // namespace sherd
