#include "coordinator/core/worker_events.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/epoch_end.h"

namespace sherd {
namespace {

// A lost worker is listed for this long, then forgotten (F26).
constexpr int64_t kLostWorkerListedMs = 10 * 60 * 1000;
// Earlier lives of a worker that are remembered.
constexpr size_t kRetiredIncarnations = 16;
// Of any world.
constexpr int kMostRanks = 1 << 16;
// No job has so many epochs, and no coordinator so many jobs: what is said beyond is a lie.
constexpr int64_t kMostNumbers = int64_t{1} << 40;

// How a worker ended, and what its job is known to have completed.
struct Loss {
  std::string cause;
  int64_t step = 0;
  int64_t silent_ms = 0;
};

void LoseRank(Transition& transition, JobRecord& job, int rank, const Loss& loss) {
  RankState& state = job.ranks[rank];
  const bool working = !state.left;
  state.phase = RankPhase::kLost;
  state.reason = loss.cause;
  state.left = true;
  if (!working || !IsUnderway(job.state)) return;
  if (!IsUndecided(job)) job.step = std::max(job.step, loss.step);
  if (AnyFinished(job)) return SucceedWhenDone(transition, job);
  EndEpoch(transition, job,
           {.kind = loss.silent_ms > 0 ? EndKind::kSilence : EndKind::kDeath,
            .cause = absl::StrCat("rank ", rank, " on worker ", state.worker.value(),
                                  " was lost after step ", job.step, ": ", loss.cause),
            .unnoticed_ms = loss.silent_ms});
  NoteLeaving(transition, job);
}

void LoseHolder(Transition& transition, JobRecord& job, CopyHolder& holder, const Loss& loss) {
  if (std::exchange(holder.left, true)) return;
  // Then its end is why a rank lost it.
  const bool suspected =
      std::any_of(job.complaints.begin(), job.complaints.end(),
                  [&](const Complaint& complaint) { return complaint.holder == holder.worker; });
  if ((IsAtWork(job) || suspected) && !AnyFinished(job) && !holder.returned) {
    EndEpoch(transition, job,
             {.kind = loss.silent_ms > 0 ? EndKind::kSilence : EndKind::kDeath,
              .cause = absl::StrCat("worker ", holder.worker.value(), ", which ",
                                    holder.source ? "was read from" : "held copies",
                                    ", was lost after step ", job.step, ": ", loss.cause),
              .unnoticed_ms = loss.silent_ms});
  }
  NoteLeaving(transition, job);
}

// It may have something of the job that its next epoch goes on after.
bool MayHold(const JobRecord& job, const WorkerState& worker) {
  const auto answer = job.answers.find(worker.id);
  const bool said = answer != job.answers.end() &&
                    answer->second.incarnation == worker.incarnation &&
                    !answer->second.holdings.empty();
  return said || IsNamed(job, worker);
}

void LoseWorker(Transition& transition, WorkerState& worker, const Loss& loss) {
  worker.alive = false;
  worker.lost_unix_ms = transition.now();
  const std::optional<Seat> seat = std::exchange(worker.seat, std::nullopt);
  const auto is_worker = [&](const auto& member) {
    return member.worker == worker.id && member.incarnation == worker.incarnation;
  };
  for (auto& [id, job] : transition.state().jobs) {
    if (loss.silent_ms > 0 && IsUnderway(job.state) && MayHold(job, worker)) {
      job.silent[worker.id] = worker.incarnation;
    }
    const auto answer = job.answers.find(worker.id);
    if (answer != job.answers.end() && answer->second.incarnation == worker.incarnation) {
      job.answers.erase(answer);
    }
    if (!IsUnderway(job.state)) continue;
    const auto holder = std::find_if(job.holders.begin(), job.holders.end(), is_worker);
    if (holder != job.holders.end()) LoseHolder(transition, job, *holder, loss);
  }
  if (!seat) return;
  JobRecord* job = transition.Job(seat->job);
  if (job == nullptr || job->epoch != seat->epoch) return;
  if (seat->rank < 0 || seat->rank >= static_cast<int>(job->ranks.size())) return;
  if (is_worker(job->ranks[seat->rank])) LoseRank(transition, *job, seat->rank, loss);
}

void ForgetLostWorkers(Transition& transition) {
  std::erase_if(transition.state().workers, [&](const auto& entry) {
    const WorkerState& worker = entry.second;
    return !worker.alive && transition.now() - worker.lost_unix_ms > kLostWorkerListedMs;
  });
}

// An epoch that is at work gives its seats itself: what a Hello says of one is no news, and may be
// a lie.
bool IsStale(const State& state, const WorkerState& worker, const Seat& seat) {
  if (seat.rank < 0 || seat.rank >= kMostRanks) return false;
  if (IsBeyond(state, seat)) return true;
  const JobRecord* job = FindJob(state, seat.job);
  if (job == nullptr || seat.epoch > job->epoch) return false;
  if (seat.epoch < job->epoch) return true;
  if (seat.rank >= static_cast<int>(job->ranks.size())) return false;
  const RankState& rank = job->ranks[seat.rank];
  if (rank.worker != worker.id || rank.incarnation != worker.incarnation) return false;
  return IsTerminal(job->state) || rank.phase == RankPhase::kLost;
}

// The next epoch is not planned before the worker has said what it holds.
void AwaitAnswer(JobRecord& job, const WorkerState& worker) {
  const auto is_worker = [&](const CopyHolder& holder) {
    return holder.worker == worker.id && holder.incarnation == worker.incarnation;
  };
  const auto found = std::find_if(job.holders.begin(), job.holders.end(), is_worker);
  if (found != job.holders.end()) {
    found->left = false;
    return;
  }
  job.holders.push_back({.worker = worker.id,
                         .incarnation = worker.incarnation,
                         .left = false,
                         .source = false,
                         .returned = true});
}

// The process that came back may hold what the next epoch needs: it is asked with the others, or,
// when those were asked already, at once. A rank that it still works as tells so when it is
// released.
void AskReturned(Transition& transition, JobRecord& job, const WorkerState& worker) {
  if (worker.seat && worker.seat->job == job.id) return;
  AwaitAnswer(job, worker);
  if (!job.holders_asked) return;
  transition.Act(SendReportHoldings{worker.id, worker.incarnation, job.id, job.epoch});
}

// What the log gave it is not what it works at, which is `claimed`.
void LeaveSeat(Transition& transition, WorkerState& worker, const Seat& claimed) {
  const std::optional<Seat> seat = std::exchange(worker.seat, std::nullopt);
  if (!seat) return;
  JobRecord* job = transition.Job(seat->job);
  if (job == nullptr || job->epoch != seat->epoch) return;
  if (seat->rank < 0 || seat->rank >= static_cast<int>(job->ranks.size())) return;
  RankState& rank = job->ranks[seat->rank];
  if (rank.worker != worker.id || rank.incarnation != worker.incarnation) return;
  if (seat->job != claimed.job) {
    return LoseRank(transition, *job, seat->rank,
                    {.cause = absl::StrCat("it works for job ", claimed.job.value())});
  }
  rank.phase = RankPhase::kLost;
  rank.reason = "it works in a later epoch";
  rank.left = true;
}

// The number at the end of an id of a job that this log does not know is not given out again: what
// workers hold of the one job would be taken for the other's.
void PassNumberOf(State& state, const JobId& id) {
  const std::string& text = id.value();
  int64_t number = 0;
  const bool numbered = absl::SimpleAtoi(text.substr(text.rfind('-') + 1), &number);
  if (numbered && number <= kMostNumbers) state.submissions = std::max(state.submissions, number);
}

// The job's current epoch gave it something to do.
bool WorksFor(const JobRecord& job, const WorkerState& worker) {
  const auto is_worker = [&](const auto& member) {
    return member.worker == worker.id && member.incarnation == worker.incarnation;
  };
  return std::any_of(job.ranks.begin(), job.ranks.end(), is_worker) ||
         std::any_of(job.holders.begin(), job.holders.end(), [&](const CopyHolder& holder) {
           return is_worker(holder) && !holder.returned;
         });
}

// `worker` is a rank of an epoch that comes after all that the log knows of the job. What it knows
// of is over, and the next epoch comes after both; it is made of what everybody says who may hold
// something.
void GoBeyond(Transition& transition, JobRecord& job, const WorkerState& worker, Epoch epoch) {
  // At once: the job may end before it forms an epoch of its own.
  if (epoch > job.told_epoch) {
    job.told_epoch = epoch;
    transition.Tell(job, absl::StrCat("worker ", worker.id.value(), " says that it works in epoch ",
                                      epoch.value(),
                                      " of the job; the coordinator's log, which is older, "
                                      "ends with epoch ",
                                      job.epoch.value()));
  }
  const bool stranger = !WorksFor(job, worker);
  // It answers when it is released.
  AwaitAnswer(job, worker);
  // That may be a lie. If it is none, those who do have a part in the epoch say so, too, or are
  // lost; it is asked with them.
  if (stranger && IsAtWork(job)) return;
  std::string cause =
      absl::StrCat("worker ", worker.id.value(), " works in epoch ", epoch.value(),
                   " of the job, and the coordinator's log, which is older, ends with epoch ",
                   job.epoch.value());
  if (job.state == v1::JOB_STATE_QUEUED) {
    std::erase(transition.state().queue, job.id);
    job.waiting = Waiting::kNone;
    job.end_kind = EndKind::kLeft;
    job.times = {.struck = transition.now(), .ended = transition.now()};
    job.aborted = job.holders_asked = true;
    job.cause = cause;
    transition.Enter(job, v1::JOB_STATE_RECOVERING, std::move(cause));
  } else {
    EndEpoch(transition, job, {.kind = EndKind::kLeft, .cause = std::move(cause)});
  }
  // With everyone who says so: the first may have been a stranger, or have come when the epoch that
  // the log knows had ended by itself.
  for (const auto& [id, other] : transition.state().workers) {
    const bool asked = IsNamed(job, other) || job.answers.contains(id);
    if (other.alive && !other.seat && !asked) AskReturned(transition, job, other);
  }
}

// A worker may say that it is a rank of something that it is no longer: it stays busy until it has
// answered an Abort, so that two epochs never share a worker.
void AdoptStaleRank(Transition& transition, WorkerState& worker, const v1::WorkerJoined& event) {
  if (event.job_id().empty()) return;
  const Seat seat{JobId(event.job_id()), Epoch(event.epoch()), event.rank()};
  if (worker.seat == seat || !IsStale(transition.state(), worker, seat)) return;
  const bool beyond = IsBeyond(transition.state(), seat);
  LeaveSeat(transition, worker, seat);
  worker.seat = seat;
  transition.Act(
      SendAbort{worker.id, worker.incarnation, seat, "the job went on without this worker"});
  if (!beyond) return;
  JobRecord* job = transition.Job(seat.job);
  if (job == nullptr) return PassNumberOf(transition.state(), seat.job);
  if (!IsTerminal(job->state)) GoBeyond(transition, *job, worker, seat.epoch);
}

// A process that had been given up may hold much of jobs that went on, or ended, without it.
void TellWhatIsOver(Transition& transition, const WorkerState& worker) {
  for (auto& [id, job] : transition.state().jobs) {
    if (IsTerminal(job.state)) {
      // Of what ended earlier it was told.
      if (transition.now() - job.ended_unix_ms > kEndedToldMs) continue;
      transition.Act(SendRetain{worker.id, worker.incarnation, id, job.epoch, /*ended=*/true});
    } else if (job.state == v1::JOB_STATE_RUNNING && job.epoch.value() > 1) {
      transition.Act(SendRetain{worker.id, worker.incarnation, id, job.epoch, /*ended=*/false});
    } else if (IsUnderway(job.state)) {
      // It is told with the others, when the job runs. Until then it counts as holding nothing.
      job.answers.try_emplace(worker.id, Answer{worker.incarnation, {}});
      if (job.state != v1::JOB_STATE_RUNNING) AskReturned(transition, job, worker);
    }
  }
}

}  // namespace

bool IsBeyond(const State& state, const Seat& seat) {
  if (seat.rank < 0 || seat.rank >= kMostRanks || seat.epoch.value() > kMostNumbers) return false;
  const JobRecord* job = FindJob(state, seat.job);
  return job == nullptr || seat.epoch > job->epoch;
}

void OnWorkerJoined(Transition& transition, const v1::WorkerJoined& event) {
  const WorkerId id(event.worker_id());
  const Incarnation incarnation(event.incarnation());
  WorkerState& worker = transition.state().workers[id];
  const bool known = !worker.id.value().empty();
  const bool returns = known && worker.incarnation == incarnation;
  if (returns && worker.alive) {
    const Seat seat{JobId(event.job_id()), Epoch(event.epoch()), event.rank()};
    if (IsBeyond(transition.state(), seat)) AdoptStaleRank(transition, worker, event);
    return;
  }
  // A process that was replaced never comes back (F24, F25).
  if (std::count(worker.retired.begin(), worker.retired.end(), incarnation) > 0) return;
  if (known && worker.incarnation != incarnation) {
    if (worker.alive) {
      LoseWorker(transition, worker, {.cause = "a new process took the worker's place"});
    }
    worker.retired.push_back(worker.incarnation);
    if (worker.retired.size() > kRetiredIncarnations) worker.retired.erase(worker.retired.begin());
    worker.draining = false;
    worker.drain_reason.clear();
  }
  // Should it have missed that, it is told again.
  worker.dismissed = false;
  worker.id = id;
  worker.incarnation = incarnation;
  worker.device = event.device();
  worker.host = event.host();
  worker.shared_memory_domain = event.shared_memory_domain();
  worker.data_address = event.data_address();
  worker.network_address = event.network_address();
  worker.numerics_fingerprint = event.numerics_fingerprint();
  worker.output_root = event.output_root();
  worker.memory_bytes = event.memory_bytes();
  // Without an id nobody knows who shares it: it is none.
  worker.gpu = event.gpu().id().empty() ? v1::Gpu() : event.gpu();
  worker.alive = true;
  worker.lost_unix_ms = 0;
  AdoptStaleRank(transition, worker, event);
  if (returns) TellWhatIsOver(transition, worker);
  ForgetLostWorkers(transition);
}

void OnWorkerLost(Transition& transition, const v1::WorkerLost& event) {
  WorkerState* worker = transition.Worker(WorkerId(event.worker_id()));
  if (worker == nullptr || !worker->alive) return;
  if (worker->incarnation != Incarnation(event.incarnation())) return;
  LoseWorker(transition, *worker, {event.cause(), event.step(), event.silent_ms()});
}

void OnDrainRequested(Transition& transition, const v1::DrainRequested& event) {
  const Incarnation incarnation(event.incarnation());
  if (!IsAlive(transition.state(), WorkerId(event.worker_id()), incarnation)) return;
  WorkerState& worker = *transition.Worker(WorkerId(event.worker_id()));
  if (std::exchange(worker.draining, true)) return;
  worker.drain_reason = event.reason();
}

void OnHoldingsReported(Transition& transition, const v1::HoldingsReported& event) {
  const WorkerId id(event.worker_id());
  const Incarnation incarnation(event.incarnation());
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch())) return;
  if (job->state != v1::JOB_STATE_RECOVERING || !job->holders_asked) return;
  if (!IsAlive(transition.state(), id, incarnation)) return;
  for (CopyHolder& holder : job->holders) {
    if (holder.worker != id || holder.incarnation != incarnation) continue;
    holder.left = true;
    RecordAnswer(*job, id, incarnation, event.holdings());
    return NoteLeaving(transition, *job);
  }
}

}  // namespace sherd
