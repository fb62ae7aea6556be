#include "coordinator/runtime/controller.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/core/assignment.h"
#include "coordinator/runtime/reunion.h"
#include "coordinator/runtime/state_time.h"

namespace sherd {

Controller::Controller(const ControllerOptions& options, const Clock& clock, EventLog& log,
                       RandomSource random, CoordinatorMetrics& metrics)
    : options_(options),
      clock_(clock),
      metrics_(metrics),
      journal_(log, clock, [&metrics](const v1::JobEvent& entry) { metrics.Observe(entry); }),
      fleet_(options.fleet, clock, journal_, timers_,
             {.append = [this](v1::DurableEvent event) { Append(std::move(event)); },
              .inspected =
                  [this](const WorkerId& worker, const v1::DataInspection& answer) {
                    jobs_.OnInspected(worker, answer);
                  },
              .disconnected = [this](const WorkerId& worker) { jobs_.OnDisconnected(worker); },
              .located =
                  [this](const WorkerId& worker, const v1::RankPosition& position) {
                    looks_.OnPosition(worker, position);
                  }}),
      jobs_(options.inspection_deadline, clock, journal_, timers_, fleet_, std::move(random),
            [this](v1::DurableEvent event) { Append(std::move(event)); }),
      looks_(options.fleet.failure_detection, clock, journal_, timers_,
             [this](const WorkerId& worker, Incarnation incarnation, v1::SessionResponse message) {
               fleet_.Send(worker, incarnation, std::move(message));
             }),
      hangs_({options.fleet.failure_detection, options.formation_time}, clock, journal_, looks_,
             [this](v1::DurableEvent event) { Append(std::move(event)); }),
      pauses_(fleet_.CheckInterval(), options.fleet.failure_detection) {}

absl::Status Controller::Recover() {
  SHERD_RETURN_IF_ERROR(journal_.Recover());
  fleet_.Recover();
  // What an earlier life waited for is waited for anew, in full.
  for (const auto& [id, job] : state().jobs) {
    if (job.state == v1::JOB_STATE_FORMING) WatchFormation(id, job.epoch);
    if (job.state != v1::JOB_STATE_RECOVERING) continue;
    if (IsAtWork(job)) WatchPause(id, job.epoch);
    if (job.patience.what != Patience::For::kNothing) WatchPatience(id, job.epoch);
    for (const CopyHolder& holder : job.holders) {
      const bool asked = job.holders_asked && !holder.left;
      if (asked) WatchHoldings(holder.worker, holder.incarnation, id, job.epoch);
    }
  }
  for (const auto& [id, worker] : state().workers) {
    if (!worker.alive || !worker.seat) continue;
    if (!WorksIn(state(), worker)) WatchRelease(id, worker.incarnation, *worker.seat);
  }
  return absl::OkStatus();
}

void Controller::Append(v1::DurableEvent event) {
  metrics_.Observe(event);
  for (const Action& action : journal_.Append(std::move(event))) Perform(action);
}

void Controller::Perform(const Action& action) {
  if (const auto* assign = std::get_if<SendAssign>(&action)) return Assign(*assign);
  if (const auto* abort = std::get_if<SendAbort>(&action)) return Abort(*abort);
  if (const auto* ask = std::get_if<SendReportHoldings>(&action)) return AskHoldings(*ask);
  if (const auto* retain = std::get_if<SendRetain>(&action)) {
    return fleet_.Send(retain->worker, retain->incarnation,
                       RetainMessage(retain->job, retain->epoch, retain->ended));
  }
  if (const auto* pause = std::get_if<SendPause>(&action)) {
    return fleet_.Send(pause->worker, pause->incarnation, PauseMessage(pause->seat, pause->reason));
  }
  if (const auto* shutdown = std::get_if<SendShutdown>(&action)) {
    return fleet_.Send(shutdown->worker, shutdown->incarnation, ShutdownMessage(shutdown->reason));
  }
  if (const auto* timer = std::get_if<StartPauseTimer>(&action)) {
    return WatchPause(timer->job, timer->epoch);
  }
  if (const auto* hold = std::get_if<SendHold>(&action)) {
    return fleet_.Send(hold->worker, hold->incarnation,
                       HoldMessage(*FindJob(state(), hold->job), hold->owners));
  }
  if (const auto* timer = std::get_if<StartPatienceTimer>(&action)) {
    return WatchPatience(timer->job, timer->epoch);
  }
  if (const auto* timer = std::get_if<StartFormationTimer>(&action)) {
    return WatchFormation(timer->job, timer->epoch);
  }
}

void Controller::Assign(const SendAssign& action) {
  const JobRecord& job = *FindJob(state(), action.seat.job);
  const Progress progress = journal_.feed().ProgressOf(job.id);
  v1::SessionResponse message;
  *message.mutable_assign() =
      assignments_.Build(state(), job, action.seat.rank, {progress.step, progress.eval_step});
  fleet_.Send(action.worker, action.incarnation, std::move(message));
}

void Controller::Abort(const SendAbort& action) {
  fleet_.Send(action.worker, action.incarnation, AbortMessage(action.seat, action.reason));
  WatchRelease(action.worker, action.incarnation, action.seat);
}

void Controller::AskHoldings(const SendReportHoldings& action) {
  fleet_.Send(action.worker, action.incarnation, ReportHoldingsMessage(action.job, action.epoch));
  WatchHoldings(action.worker, action.incarnation, action.job, action.epoch);
}

void Controller::WatchFormation(const JobId& job, Epoch epoch) {
  const absl::Duration time = ReadyTime(*FindJob(state(), job), options_.formation_time);
  timers_.At(clock_.Now() + time, [this, job, epoch] {
    const JobRecord* record = FindJob(state(), job);
    if (record == nullptr || record->epoch != epoch) return;
    if (record->state != v1::JOB_STATE_FORMING) return;
    const auto expire = [this, epoch](const JobRecord& expired) {
      v1::DurableEvent event;
      event.mutable_formation_expired()->set_job_id(expired.id.value());
      event.mutable_formation_expired()->set_epoch(epoch.value());
      Append(std::move(event));
    };
    if (!ReadsState(*record)) return expire(*record);
    looks_.ExpireUnlessCopying(*record, options_.formation_time, expire);
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

void Controller::WatchHoldings(const WorkerId& worker, Incarnation incarnation, const JobId& job,
                               Epoch epoch) {
  timers_.At(clock_.Now() + options_.release_time, [this, worker, incarnation, job, epoch] {
    const JobRecord* record = FindJob(state(), job);
    if (record == nullptr || record->epoch != epoch) return;
    if (record->state != v1::JOB_STATE_RECOVERING) return;
    for (const CopyHolder& holder : record->holders) {
      if (holder.worker != worker || holder.incarnation != incarnation || holder.left) continue;
      return fleet_.GiveUp(worker, incarnation,
                           absl::StrCat("it did not say what it holds of job ", job.value(),
                                        " within ", absl::FormatDuration(options_.release_time)));
    }
  });
}

void Controller::WatchPause(const JobId& job, Epoch epoch) {
  const absl::Duration patience = hangs_.PatienceOf(*FindJob(state(), job));
  timers_.At(clock_.Now() + patience, [this, job, epoch, patience] {
    const JobRecord* record = FindJob(state(), job);
    if (record == nullptr || record->epoch != epoch) return;
    if (record->state != v1::JOB_STATE_RECOVERING || !IsAtWork(*record)) return;
    looks_.ExpireUnlessCopying(*record, patience, [this, patience](const JobRecord& stuck) {
      if (!IsAtWork(stuck)) return;
      hangs_.Convict(stuck, /*rank=*/-1,
                     absl::StrCat("the ranks did not stop within ", absl::FormatDuration(patience),
                                  " after they were asked to"),
                     patience);
    });
  });
}

void Controller::WatchPatience(const JobId& job, Epoch epoch) {
  const JobRecord& waiting = *FindJob(state(), job);
  const Patience& patience = waiting.patience;
  const int64_t own = waiting.spec.elastic().failure_detection_ms();
  const absl::Duration detection =
      own > 0 ? absl::Milliseconds(own) : options_.fleet.failure_detection;
  const absl::Duration delay = patience.delay_ms >= 0 ? absl::Milliseconds(patience.delay_ms)
                               : patience.what == Patience::For::kSave ? detection
                                                                       : 2 * detection;
  timers_.At(clock_.Now() + delay, [this, job, epoch, since = patience.since_unix_ms] {
    const JobRecord* record = FindJob(state(), job);
    if (record == nullptr || record->epoch != epoch) return;
    if (record->state != v1::JOB_STATE_RECOVERING) return;
    if (record->patience.what == Patience::For::kNothing) return;
    if (record->patience.since_unix_ms != since) return;
    v1::DurableEvent event;
    event.mutable_patience_expired()->set_job_id(job.value());
    event.mutable_patience_expired()->set_epoch(epoch.value());
    Append(std::move(event));
  });
}

void Controller::BeginTurn() {
  turn_began_ = clock_.Now();
  const absl::Duration pause = pauses_.Excused(turn_began_);
  if (pause == absl::ZeroDuration()) return;
  timers_.Postpone(pause);
  fleet_.Postpone(pause);
  looks_.Postpone(pause);
  hangs_.Postpone(pause);
}

absl::Status Controller::EndTurn() {
  timers_.RunDue(turn_began_);
  const bool check = turn_began_ >= next_check_;
  if (check) {
    fleet_.CheckLeases(turn_began_);
    hangs_.Check(turn_began_);
    metrics_.Update(journal_, static_cast<int64_t>(fleet_.Connected().size()), turn_began_);
    next_check_ = turn_began_ + fleet_.CheckInterval();
  }
  fleet_.FlushAcknowledgements();
  SHERD_RETURN_IF_ERROR(journal_.Commit());
  jobs_.ServeReaders();
  if (check) journal_.Tidy(options_.compact_after);
  return absl::OkStatus();
}

absl::Time Controller::NextDeadline() const { return std::min(timers_.Next(), next_check_); }

void Controller::Stop() {
  fleet_.Stop();
  jobs_.Stop();
  timers_.Clear();
}

}  // namespace sherd
