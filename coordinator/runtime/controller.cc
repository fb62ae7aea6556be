#include "coordinator/runtime/controller.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/core/assignment.h"
#include "coordinator/runtime/reunion.h"

namespace sherd {

Controller::Controller(const ControllerOptions& options, const Clock& clock, EventLog& log,
                       RandomSource random, CoordinatorMetrics& metrics)
    : options_(options),
      clock_(clock),
      metrics_(metrics),
      journal_(log, clock),
      fleet_(options.fleet, clock, journal_, timers_,
             {.append = [this](v1::DurableEvent event) { Append(std::move(event)); },
              .inspected =
                  [this](const WorkerId& worker, const v1::DataInspection& answer) {
                    jobs_.OnInspected(worker, answer);
                  },
              .disconnected = [this](const WorkerId& worker) { jobs_.OnDisconnected(worker); }}),
      jobs_(options.inspection_deadline, clock, journal_, timers_, fleet_, std::move(random),
            [this](v1::DurableEvent event) { Append(std::move(event)); }) {}

absl::Status Controller::Recover() {
  SHERD_RETURN_IF_ERROR(journal_.Recover());
  fleet_.Recover();
  // What an earlier life waited for is waited for anew, in full.
  for (const auto& [id, job] : state().jobs) {
    if (!HoldsWorkers(job.state)) continue;
    if (!job.suspicion.empty()) WatchSuspicion(id, job.epoch);
    if (job.state == v1::JOB_STATE_FORMING) WatchFormation(id, job.epoch);
  }
  for (const auto& [id, worker] : state().workers) {
    if (!worker.alive || !worker.seat) continue;
    const JobRecord* job = FindJob(state(), worker.seat->job);
    const bool wanted = job != nullptr && HoldsWorkers(job->state) && !job->aborted;
    if (!wanted) WatchRelease(id, worker.incarnation, *worker.seat);
  }
  return absl::OkStatus();
}

void Controller::Append(v1::DurableEvent event) {
  for (const Action& action : journal_.Append(std::move(event))) Perform(action);
}

void Controller::Perform(const Action& action) {
  if (const auto* assign = std::get_if<SendAssign>(&action)) return Assign(*assign);
  if (const auto* abort = std::get_if<SendAbort>(&action)) return Abort(*abort);
  if (const auto* timer = std::get_if<StartSuspicionTimer>(&action)) {
    return WatchSuspicion(timer->job, timer->epoch);
  }
  if (const auto* timer = std::get_if<StartFormationTimer>(&action)) {
    return WatchFormation(timer->job, timer->epoch);
  }
}

void Controller::Assign(const SendAssign& action) {
  const JobRecord& job = *FindJob(state(), action.seat.job);
  v1::SessionResponse message;
  *message.mutable_assign() = assignments_.Build(state(), job, action.seat.rank);
  fleet_.Send(action.worker, action.incarnation, std::move(message));
}

void Controller::Abort(const SendAbort& action) {
  fleet_.Send(action.worker, action.incarnation, AbortMessage(action.seat, action.reason));
  WatchRelease(action.worker, action.incarnation, action.seat);
}

void Controller::WatchSuspicion(const JobId& job, Epoch epoch) {
  timers_.At(clock_.Now() + options_.suspicion_time, [this, job, epoch] {
    const JobRecord* record = FindJob(state(), job);
    if (record == nullptr || record->epoch != epoch || record->suspicion.empty()) return;
    v1::DurableEvent event;
    event.mutable_suspicion_expired()->set_job_id(job.value());
    event.mutable_suspicion_expired()->set_epoch(epoch.value());
    Append(std::move(event));
  });
}

void Controller::WatchFormation(const JobId& job, Epoch epoch) {
  timers_.At(clock_.Now() + options_.formation_time, [this, job, epoch] {
    const JobRecord* record = FindJob(state(), job);
    if (record == nullptr || record->epoch != epoch) return;
    if (record->state != v1::JOB_STATE_FORMING) return;
    v1::DurableEvent event;
    event.mutable_formation_expired()->set_job_id(job.value());
    event.mutable_formation_expired()->set_epoch(epoch.value());
    Append(std::move(event));
  });
}

void Controller::WatchRelease(const WorkerId& worker, Incarnation incarnation, const Seat& seat) {
  timers_.At(clock_.Now() + options_.release_time, [this, worker, incarnation, seat] {
    const WorkerState* record = FindWorker(state(), worker);
    if (record == nullptr || record->incarnation != incarnation || record->seat != seat) return;
    fleet_.GiveUp(worker, incarnation,
                  absl::StrCat("it did not release job ", seat.job.value(), " within ",
                               absl::FormatDuration(options_.release_time)));
  });
}

absl::Status Controller::EndTurn() {
  const absl::Time now = clock_.Now();
  timers_.RunDue(now);
  if (now >= next_check_) {
    fleet_.CheckLeases(now);
    metrics_.Update(journal_, static_cast<int64_t>(fleet_.Connected().size()));
    next_check_ = now + fleet_.CheckInterval();
  }
  fleet_.FlushAcknowledgements();
  SHERD_RETURN_IF_ERROR(journal_.Commit());
  jobs_.ServeReaders();
  return absl::OkStatus();
}

absl::Time Controller::NextDeadline() const { return std::min(timers_.Next(), next_check_); }

void Controller::Stop() {
  fleet_.Stop();
  jobs_.Stop();
  timers_.Clear();
}

}  // namespace sherd
