#include "coordinator/core/rank_events.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/epoch_end.h"
#include "coordinator/core/next_epoch.h"
#include "coordinator/core/trials.h"

namespace sherd {
namespace {

std::string RankOnWorker(int rank, const RankState& state) {
  return absl::StrCat("rank ", rank, " on worker ", state.worker.value());
}

bool AllRanks(const JobRecord& job, bool (*holds)(RankPhase)) {
  return std::all_of(job.ranks.begin(), job.ranks.end(),
                     [holds](const RankState& rank) { return holds(rank.phase); });
}

// A rank that has finished, or has saved and left, was ready, also if the reports of others come
// later than its own.
void RunWhenFormed(Transition& transition, JobRecord& job) {
  if (job.state != v1::JOB_STATE_FORMING) return;
  const bool formed = AllRanks(job, [](RankPhase phase) {
    return phase == RankPhase::kRunning || phase == RankPhase::kFinished ||
           phase == RankPhase::kReleased;
  });
  if (formed) RunEpoch(transition, job);
}

void OnReady(Transition& transition, JobRecord& job, RankState& rank,
             const v1::RankChanged& event) {
  if (rank.phase != RankPhase::kForming) return;
  rank.phase = RankPhase::kRunning;
  if (IsUnderway(job.state)) SettleStart(transition, job, event.step());
  // Of the rank that is ready last, whatever the others did meanwhile.
  constexpr double kLongest = 1e6;
  job.times.forming = static_cast<int64_t>(std::clamp(event.form_seconds(), 0.0, kLongest) * 1000);
  RunWhenFormed(transition, job);
}

void OnFinished(Transition& transition, JobRecord& job, RankState& rank,
                const v1::RankChanged& event) {
  // What came before stays the reason of a rank that was ended for it.
  if (rank.phase != RankPhase::kFailed) rank.phase = RankPhase::kFinished;
  rank.left = true;
  if (!IsUnderway(job.state)) return;
  RecordAnswer(job, rank.worker, rank.incarnation, event.holdings());
  job.step = std::max(job.step, event.step());
  if (!event.weights_path().empty()) job.weights_path = event.weights_path();
  RunWhenFormed(transition, job);
  // It had nothing to train but to finish.
  if (job.state == v1::JOB_STATE_RUNNING) AnnounceEpoch(transition, job);
  if (AnyFinished(job)) return SucceedWhenDone(transition, job);
  NoteLeaving(transition, job);
}

// Who the rank's Assignment names by this address, to store its shard or to give it a part of the
// version; nullptr when nobody.
const WorkerState* FindNamed(const State& state, const JobRecord& job, const RankState& rank,
                             const std::string& address) {
  const WorkerState* own = FindWorker(state, rank.worker);
  if (own == nullptr || address.empty()) return nullptr;
  std::vector<WorkerId> named = rank.holders;
  for (const auto& [part, holders] : job.restore.parts) {
    for (const PartHolder& holder : holders) named.push_back(holder.worker);
  }
  for (const WorkerId& id : named) {
    const WorkerState* worker = FindWorker(state, id);
    if (worker != nullptr && AddressFor(*own, *worker) == address) return worker;
  }
  return nullptr;
}

void OnFailed(Transition& transition, JobRecord& job, RankState& rank,
              const v1::RankChanged& event) {
  if (rank.left) return;
  // A session that broke: who lives comes back and tells how it finished, too; else it is lost
  // soon.
  if (AnyFinished(job) && event.lost_peer() == event.rank()) return;
  rank.phase = RankPhase::kFailed;
  rank.reason = event.error();
  if (!IsUnderway(job.state)) return;
  if (AnyFinished(job)) return SucceedWhenDone(transition, job);
  std::string text =
      absl::StrCat(RankOnWorker(event.rank(), rank), " failed after step ", event.step());
  if (!event.operation().empty()) absl::StrAppend(&text, " (", event.operation(), ")");
  absl::StrAppend(&text, ": ", event.error());
  if (event.final() && IsUndecided(job)) {
    StrikeOff(job, text);
  } else if (event.final() && !job.save_and_stop) {
    // What cannot be saved ends no job.
    return transition.End(job, v1::JOB_STATE_FAILED, std::move(text));
  }
  const int peer = event.lost_peer();
  const bool lost_peer = peer >= 0;
  const WorkerState* holder =
      lost_peer ? nullptr : FindNamed(transition.state(), job, rank, event.lost_holder());
  // Behind a cause that is no suspicion nobody's complaint says more.
  const bool explained = HasEnded(job) && !job.suspicion && job.complaints.empty();
  if (lost_peer && peer < static_cast<int>(job.ranks.size())) {
    absl::StrAppend(&text, " (worker ", job.ranks[peer].worker.value(), ")");
    if (!explained) job.complaints.push_back({event.rank(), peer, WorkerId()});
  } else if (holder != nullptr) {
    absl::StrAppend(&text, " (worker ", holder->id.value(), ")");
    if (!explained) job.complaints.push_back({event.rank(), -1, holder->id});
  }
  const bool link = lost_peer || holder != nullptr;
  EndEpoch(transition, job,
           {.kind = link ? EndKind::kLink : EndKind::kFailure,
            .cause = std::move(text),
            .suspicion = link});
}

void OnReleased(Transition& transition, JobRecord& job, RankState& rank,
                const v1::RankChanged& event) {
  if (rank.phase != RankPhase::kFailed) rank.phase = RankPhase::kReleased;
  rank.left = true;
  if (!IsUnderway(job.state)) return;
  RecordAnswer(job, rank.worker, rank.incarnation, event.holdings());
  // No step of a measurement is the job's.
  if (!IsUndecided(job)) job.step = std::max(job.step, event.step());
  if (AnyFinished(job)) return SucceedWhenDone(transition, job);
  if (job.state == v1::JOB_STATE_RECOVERING) return NoteLeaving(transition, job);
  if (job.save_and_stop) {
    RunWhenFormed(transition, job);
    const bool all = std::all_of(job.ranks.begin(), job.ranks.end(),
                                 [](const RankState& other) { return other.left; });
    if (all) EndSavingEpoch(transition, job);
    return;
  }
  EndEpoch(transition, job,
           {.kind = EndKind::kLeft,
            .cause = absl::StrCat(RankOnWorker(event.rank(), rank), " left the job after step ",
                                  job.step)});
}

bool EndsSeat(const v1::RankChanged& event) {
  return event.milestone() == v1::RankChanged::MILESTONE_FINISHED ||
         event.milestone() == v1::RankChanged::MILESTONE_RELEASED;
}

// The seat is of an epoch that the job has left, or that went on without it.
bool IsStale(const JobRecord* job, const Seat& seat) {
  return job == nullptr || job->epoch != seat.epoch || seat.rank < 0 ||
         seat.rank >= static_cast<int>(job->ranks.size()) ||
         job->ranks[seat.rank].phase == RankPhase::kLost;
}

// Frees the worker that reports the end of a seat, which may be a stale one.
bool FreeSeat(Transition& transition, const v1::RankChanged& event, const Seat& seat) {
  WorkerState* worker = transition.Worker(WorkerId(event.worker_id()));
  if (worker == nullptr || worker->incarnation != Incarnation(event.incarnation())) return false;
  if (!worker->alive || worker->seat != seat) return false;
  if (EndsSeat(event)) worker->seat.reset();
  return true;
}

// A worker that had been given up and came back has left its old rank. What it holds may still be
// wanted, as long as the next epoch has not restored.
void OnStaleSeatEnded(Transition& transition, JobRecord* job, const v1::RankChanged& event) {
  if (event.milestone() != v1::RankChanged::MILESTONE_RELEASED) return;
  const WorkerId worker(event.worker_id());
  const Incarnation incarnation(event.incarnation());
  const bool wanted = job != nullptr && (job->state == v1::JOB_STATE_RECOVERING ||
                                         job->state == v1::JOB_STATE_FORMING);
  if (wanted) {
    RecordAnswer(*job, worker, incarnation, event.holdings());
    if (Epoch(event.epoch()) > job->epoch) job->step = std::max(job->step, event.step());
    for (CopyHolder& holder : job->holders) {
      if (holder.worker == worker && holder.incarnation == incarnation) holder.left = true;
    }
    return NoteLeaving(transition, *job);
  }
  // Also when no version is whole: it may have the memory for one.
  const bool ended = job == nullptr || IsTerminal(job->state);
  transition.Act(SendRetain{worker, incarnation, JobId(event.job_id()),
                            job == nullptr ? Epoch(event.epoch()) : job->epoch, ended});
}

}  // namespace

void OnRankChanged(Transition& transition, const v1::RankChanged& event) {
  const Seat seat{JobId(event.job_id()), Epoch(event.epoch()), event.rank()};
  JobRecord* job = transition.Job(seat.job);
  const bool stale = IsStale(job, seat);
  // It was told to stop, and says what it holds when it answers that.
  if (stale && event.milestone() == v1::RankChanged::MILESTONE_FINISHED) return;
  if (!FreeSeat(transition, event, seat)) return;
  if (stale) return OnStaleSeatEnded(transition, job, event);
  RankState& rank = job->ranks[seat.rank];
  if (rank.worker.value() != event.worker_id()) return;
  if (rank.incarnation != Incarnation(event.incarnation())) return;
  switch (event.milestone()) {
    case v1::RankChanged::MILESTONE_READY:
      return OnReady(transition, *job, rank, event);
    case v1::RankChanged::MILESTONE_FINISHED:
      if (IsUndecided(*job)) return OnMeasured(transition, *job, seat.rank, event);
      return OnFinished(transition, *job, rank, event);
    case v1::RankChanged::MILESTONE_FAILED:
      return OnFailed(transition, *job, rank, event);
    case v1::RankChanged::MILESTONE_RELEASED:
      return OnReleased(transition, *job, rank, event);
    default:
      return;
  }
}

void OnFormationExpired(Transition& transition, const v1::FormationExpired& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch())) return;
  if (job->state != v1::JOB_STATE_FORMING) return;
  std::string missing;
  for (size_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (job->ranks[rank].phase != RankPhase::kForming) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ",
                    RankOnWorker(static_cast<int>(rank), job->ranks[rank]));
  }
  EndEpoch(transition, *job,
           {.kind = EndKind::kFormation,
            .cause = absl::StrCat("the world did not form in time: ", missing,
                                  " did not become ready")});
}

void OnEpochProgressed(Transition& transition, const v1::EpochProgressed& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch()) || !IsUnderway(job->state)) return;
  if (IsUndecided(*job)) return;
  job->step = std::max(job->step, event.step());
  job->progressed = true;
  job->failed_saves = 0;
  if (job->state == v1::JOB_STATE_RUNNING) AnnounceEpoch(transition, *job);
}

void OnCheckpointSaved(Transition& transition, const v1::CheckpointSaved& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch()) || !IsUnderway(job->state)) return;
  if (event.path().empty() || IsUndecided(*job)) return;
  job->checkpoint = {event.step(), event.path()};
  job->failed_saves = 0;
  if (!job->save_and_stop || event.step() < job->restore.step) return;
  job->progressed = true;
  job->fruitless = 0;
}

void OnPatienceExpired(Transition& transition, const v1::PatienceExpired& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch())) return;
  if (job->state != v1::JOB_STATE_RECOVERING) return;
  Patience& patience = job->patience;
  if (patience.what == Patience::For::kSilent ||
      patience.what == Patience::For::kSilentBeforeSave) {
    patience.silent_over = true;
  }
  if (patience.what == Patience::For::kSave) patience.save_due = true;
  patience.what = Patience::For::kNothing;
}

void OnHangDetected(Transition& transition, const v1::HangDetected& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch())) return;
  const bool hangs = job->state == v1::JOB_STATE_RUNNING ||
                     (job->state == v1::JOB_STATE_RECOVERING && job->paused);
  if (!hangs) return;
  // The output is durable: whoever does not come to its end is not waited for.
  if (AnyFinished(*job)) return transition.End(*job, v1::JOB_STATE_SUCCEEDED, "");
  if (!IsUndecided(*job)) job->step = std::max(job->step, event.step());
  EndEpoch(transition, *job,
           {.kind = EndKind::kHang, .cause = event.verdict(), .unnoticed_ms = event.stalled_ms()});
}

}  // namespace sherd
