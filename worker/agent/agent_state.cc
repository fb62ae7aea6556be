#include "worker/agent/agent_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace sherd {
namespace {

RankId IdOf(const v1::Assignment& assignment) {
  return {JobId(assignment.job_id()), Epoch(assignment.epoch()), assignment.rank()};
}

v1::RankReport ReportOf(const RankId& id) {
  v1::RankReport report;
  report.set_job_id(id.job.value());
  report.set_epoch(id.epoch.value());
  report.set_rank(id.rank);
  return report;
}

// `step`: the last committed one.
Report Released(const RankId& id, int64_t step) {
  Report action{ReportOf(id)};
  action.report.mutable_released()->set_step(step);
  return action;
}

Report Finished(const RankId& id, const TrainerEnded& ended) {
  Report action{ReportOf(id)};
  v1::RankFinished& finished = *action.report.mutable_finished();
  finished.set_steps(ended.step);
  finished.set_weights_path(ended.weights_path);
  finished.mutable_last_steps()->Assign(ended.last_steps.begin(), ended.last_steps.end());
  if (ended.trial) *finished.mutable_trial() = *ended.trial;
  return action;
}

Report Failed(const RankId& id, const std::string& error, const TrainerEnded& ended) {
  Report action{ReportOf(id)};
  v1::RankFailed& failed = *action.report.mutable_failed();
  failed.set_error(error);
  failed.set_step(ended.step);
  failed.set_operation(ended.operation);
  failed.set_lost_peer(ended.lost_peer);
  failed.set_lost_holder(ended.lost_holder);
  failed.set_final(ended.final);
  return action;
}

}  // namespace

std::vector<AgentAction> AgentState::Handle(const AgentEvent& event) {
  if (phase_ == Phase::kStopped) return {};
  return std::visit([this](const auto& occurred) { return On(occurred); }, event);
}

AgentState::Actions AgentState::On(const AssignReceived& event) {
  const RankId id = IdOf(event.assignment);
  const RankId* known = Find(id.job);
  if (known != nullptr && id.epoch <= known->epoch) return {};
  Remember(id);
  if (rank_.has_value()) {
    return {Failed(id,
                   absl::StrCat("the worker still works on job ", rank_->job.value(), ", epoch ",
                                rank_->epoch.value()),
                   TrainerEnded{})};
  }
  phase_ = Phase::kTraining;
  rank_ = id;
  return {StartTrainer{event.assignment}};
}

AgentState::Actions AgentState::On(const AbortReceived& event) {
  const RankId id{JobId(event.abort.job_id()), Epoch(event.abort.epoch()), event.abort.rank()};
  const RankId* known = Find(id.job);
  // Remembered so that an Assign which is still under way cannot start a dead epoch.
  if (known == nullptr || known->epoch < id.epoch) Remember(id);

  const bool ends_current = rank_.has_value() && rank_->job == id.job && rank_->epoch <= id.epoch;
  if (!ends_current) return {Released(id, /*step=*/0)};
  const bool owed = std::any_of(owed_releases_.begin(), owed_releases_.end(),
                                [&id](const RankId& other) { return other.epoch == id.epoch; });
  if (!owed) owed_releases_.push_back(id);
  if (phase_ == Phase::kAborting) return {};
  phase_ = Phase::kAborting;
  return {AbortTrainer{event.abort.reason()}};
}

AgentState::Actions AgentState::On(const PauseReceived& event) {
  const JobId job(event.pause.job_id());
  const Epoch epoch(event.pause.epoch());
  const RankId* known = Find(job);
  const bool runs = rank_.has_value() && rank_->job == job && rank_->epoch == epoch;
  if (runs) return phase_ == Phase::kTraining ? Actions{PauseTrainer{}} : Actions{};
  // Of another rank than the newest that was heard of nothing is owed.
  if (known == nullptr || known->epoch != epoch) return {};
  return {Released(*known, /*step=*/0)};
}

AgentState::Actions AgentState::On(const LocateReceived& event) {
  const bool runs = rank_.has_value() && rank_->job == JobId(event.request.job_id()) &&
                    rank_->epoch == Epoch(event.request.epoch());
  if (!runs) return {};
  return {TellPosition{*rank_, event.request.question()}};
}

AgentState::Actions AgentState::On(const TrainerEnded& event) {
  SHERD_CHECK(rank_.has_value());
  const RankId id = *std::exchange(rank_, std::nullopt);
  Actions actions;
  if (!owed_releases_.empty()) {
    // Why it ended itself, if it did, is what its peers only passed on. Holders that know of the
    // epoch's end close their links.
    const bool own_failure = !event.status.ok() && !absl::IsAborted(event.status) &&
                             event.lost_peer < 0 && event.lost_holder.empty();
    if (own_failure) actions.push_back(Failed(id, std::string(event.status.message()), event));
    for (const RankId& owed : owed_releases_) actions.push_back(Released(owed, event.step));
    owed_releases_.clear();
  } else if (event.status.ok() && event.paused) {
    actions.push_back(Released(id, event.step));
  } else if (event.status.ok()) {
    actions.push_back(Finished(id, event));
  } else {
    actions.push_back(Failed(id,
                             stopping_.has_value()
                                 ? absl::StrCat("the worker was stopped: ", stopping_->reason)
                                 : std::string(event.status.message()),
                             event));
  }
  phase_ = Phase::kIdle;
  if (stopping_.has_value()) {
    phase_ = Phase::kStopped;
    actions.push_back(ExitProcess{stopping_->exit_code, stopping_->reason});
  }
  return actions;
}

AgentState::Actions AgentState::On(const StopRequested& event) {
  if (!rank_.has_value()) {
    phase_ = Phase::kStopped;
    return {ExitProcess{event.exit_code, event.reason}};
  }
  // The first reason is the one that explains the end.
  if (!stopping_.has_value()) {
    stopping_ = event;
    stopping_->exit_code = event.exit_code_at_work;
  }
  if (phase_ == Phase::kAborting) return {};
  phase_ = Phase::kAborting;
  return {AbortTrainer{event.reason}};
}

AgentState::Actions AgentState::On(const AbortOverdue&) {
  if (phase_ != Phase::kAborting) return {};
  phase_ = Phase::kStopped;
  return {ExitProcess{
      kExitStuck, absl::StrCat("the trainer of job ", rank_->job.value(), ", epoch ",
                               rank_->epoch.value(), " does not end; leaving it to the kernel")}};
}

const RankId* AgentState::Find(const JobId& job) const {
  const auto found = std::find_if(newest_.begin(), newest_.end(),
                                  [&job](const RankId& id) { return id.job == job; });
  return found == newest_.end() ? nullptr : &*found;
}

void AgentState::Remember(const RankId& id) {
  std::erase_if(newest_, [&id](const RankId& known) { return known.job == id.job; });
  newest_.push_back(id);
  if (newest_.size() > kRememberedJobs) newest_.pop_front();
}

absl::string_view NameOf(AgentState::Phase phase) {
  switch (phase) {
    case AgentState::Phase::kIdle:
      return "idle";
    case AgentState::Phase::kTraining:
      return "training";
    case AgentState::Phase::kAborting:
      return "aborting";
    case AgentState::Phase::kStopped:
      return "stopped";
  }
  return "";
}

}  // namespace sherd
