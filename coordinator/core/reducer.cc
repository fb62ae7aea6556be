#include "coordinator/core/reducer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/transition.h"

namespace sherd {
namespace {

// A lost worker is listed for this long, then forgotten (F26).
constexpr int64_t kLostWorkerListedMs = 10 * 60 * 1000;
// Earlier lives of a worker that are remembered.
constexpr size_t kRetiredIncarnations = 16;
// Of any world.
constexpr int kMostRanks = 1 << 16;

std::string RankOnWorker(int rank, const RankState& state) {
  return absl::StrCat("rank ", rank, " on worker ", state.worker.value());
}

void LoseRank(Transition& transition, JobRecord& job, int rank, const std::string& cause,
              int64_t step) {
  RankState& state = job.ranks[rank];
  state.phase = RankPhase::kLost;
  state.reason = cause;
  if (!HoldsWorkers(job.state)) return;
  job.step = std::max(job.step, step);
  transition.End(
      job, v1::JOB_STATE_FAILED,
      absl::StrCat(RankOnWorker(rank, state), " was lost after step ", job.step, ": ", cause));
}

void LoseWorker(Transition& transition, WorkerState& worker, const std::string& cause,
                int64_t step) {
  worker.alive = false;
  worker.lost_unix_ms = transition.now();
  const std::optional<Seat> seat = std::exchange(worker.seat, std::nullopt);
  if (!seat) return;
  JobRecord* job = transition.Job(seat->job);
  if (job == nullptr || job->epoch != seat->epoch) return;
  if (seat->rank < 0 || seat->rank >= static_cast<int>(job->ranks.size())) return;
  const RankState& rank = job->ranks[seat->rank];
  if (rank.worker != worker.id || rank.incarnation != worker.incarnation) return;
  LoseRank(transition, *job, seat->rank, cause, step);
}

void ForgetLostWorkers(Transition& transition) {
  std::erase_if(transition.state().workers, [&](const auto& entry) {
    const WorkerState& worker = entry.second;
    return !worker.alive && transition.now() - worker.lost_unix_ms > kLostWorkerListedMs;
  });
}

void OnJobSubmitted(Transition& transition, const v1::JobSubmitted& event) {
  State& state = transition.state();
  // A retried submit must not make a second job (F53).
  if (state.jobs_by_request.contains(event.request_id())) return;
  if (state.jobs.contains(JobId(event.job_id()))) return;
  JobRecord& job = state.jobs[JobId(event.job_id())];
  job.id = JobId(event.job_id());
  job.request_id = event.request_id();
  job.spec = event.spec();
  job.secret = event.secret();
  job.order = ++state.submissions;
  job.submitted_unix_ms = transition.now();
  state.jobs_by_request[event.request_id()] = job.id;
  transition.Enqueue(job);
  transition.Enter(job, v1::JOB_STATE_QUEUED, "submitted");
  transition.PlaceSubmitted(job);
}

void OnCancelRequested(Transition& transition, const v1::CancelRequested& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || IsTerminal(job->state)) return;
  transition.End(*job, v1::JOB_STATE_CANCELLED, "cancelled by a user");
}

// A live epoch gives its seats itself: what a Hello says of one is no news, and may be a lie.
bool IsStale(Transition& transition, const WorkerState& worker, const Seat& seat) {
  if (seat.rank < 0 || seat.rank >= kMostRanks) return false;
  const JobRecord* job = transition.Job(seat.job);
  if (job == nullptr || seat.epoch < job->epoch) return true;
  if (seat.epoch > job->epoch || !IsTerminal(job->state)) return false;
  if (seat.rank >= static_cast<int>(job->ranks.size())) return false;
  const RankState& rank = job->ranks[seat.rank];
  return rank.worker == worker.id && rank.incarnation == worker.incarnation;
}

// A worker may say that it is a rank of something that it is no longer: it stays busy until it has
// answered an Abort, so that two epochs never share a worker.
void AdoptStaleRank(Transition& transition, WorkerState& worker, const v1::WorkerJoined& event) {
  if (event.job_id().empty()) return;
  const Seat seat{JobId(event.job_id()), Epoch(event.epoch()), event.rank()};
  if (!IsStale(transition, worker, seat)) return;
  worker.seat = seat;
  transition.Act(
      SendAbort{worker.id, worker.incarnation, seat, "the job went on without this worker"});
}

void OnWorkerJoined(Transition& transition, const v1::WorkerJoined& event) {
  const WorkerId id(event.worker_id());
  const Incarnation incarnation(event.incarnation());
  WorkerState& worker = transition.state().workers[id];
  const bool known = !worker.id.value().empty();
  if (known && worker.incarnation == incarnation && worker.alive) return;
  // A process that was replaced never comes back (F24, F25).
  if (std::count(worker.retired.begin(), worker.retired.end(), incarnation) > 0) return;
  if (known && worker.incarnation != incarnation) {
    if (worker.alive) {
      LoseWorker(transition, worker, "a new process took the worker's place", /*step=*/0);
    }
    worker.retired.push_back(worker.incarnation);
    if (worker.retired.size() > kRetiredIncarnations) worker.retired.erase(worker.retired.begin());
  }
  worker.id = id;
  worker.incarnation = incarnation;
  worker.device = event.device();
  worker.host = event.host();
  worker.shared_memory_domain = event.shared_memory_domain();
  worker.data_address = event.data_address();
  worker.network_address = event.network_address();
  worker.numerics_fingerprint = event.numerics_fingerprint();
  worker.output_root = event.output_root();
  worker.alive = true;
  worker.lost_unix_ms = 0;
  AdoptStaleRank(transition, worker, event);
}

void OnWorkerLost(Transition& transition, const v1::WorkerLost& event) {
  WorkerState* worker = transition.Worker(WorkerId(event.worker_id()));
  if (worker == nullptr || !worker->alive) return;
  if (worker->incarnation != Incarnation(event.incarnation())) return;
  LoseWorker(transition, *worker, event.cause(), event.step());
}

bool All(const JobRecord& job, bool (*holds)(RankPhase)) {
  return std::all_of(job.ranks.begin(), job.ranks.end(),
                     [holds](const RankState& rank) { return holds(rank.phase); });
}

// A rank that has finished was ready, also if its reports arrive in one go.
void RunWhenFormed(Transition& transition, JobRecord& job) {
  if (job.state != v1::JOB_STATE_FORMING || job.aborted) return;
  const bool formed = All(job, [](RankPhase phase) {
    return phase == RankPhase::kRunning || phase == RankPhase::kFinished;
  });
  if (formed) transition.Enter(job, v1::JOB_STATE_RUNNING, "");
}

void OnRankReady(Transition& transition, JobRecord& job, RankState& rank) {
  if (rank.phase != RankPhase::kForming) return;
  rank.phase = RankPhase::kRunning;
  RunWhenFormed(transition, job);
}

void OnRankFinished(Transition& transition, JobRecord& job, RankState& rank,
                    const v1::RankChanged& event) {
  // What came before stays the reason of a rank that was ended for it.
  if (rank.phase != RankPhase::kFailed) rank.phase = RankPhase::kFinished;
  if (!HoldsWorkers(job.state)) return;
  if (!event.weights_path().empty()) job.weights_path = event.weights_path();
  RunWhenFormed(transition, job);
  const bool all = All(job, [](RankPhase phase) { return phase == RankPhase::kFinished; });
  if (all) transition.End(job, v1::JOB_STATE_SUCCEEDED, "");
}

void OnRankFailed(Transition& transition, JobRecord& job, RankState& rank,
                  const v1::RankChanged& event) {
  rank.phase = RankPhase::kFailed;
  rank.reason = event.error();
  if (!HoldsWorkers(job.state)) return;
  std::string text =
      absl::StrCat(RankOnWorker(event.rank(), rank), " failed after step ", event.step());
  if (!event.operation().empty()) absl::StrAppend(&text, " (", event.operation(), ")");
  absl::StrAppend(&text, ": ", event.error());
  if (event.lost_peer() < 0) {
    transition.End(job, v1::JOB_STATE_FAILED, std::move(text));
    return;
  }
  // The others are waiting for the same peer: none of them runs into a time-out (F21, F22).
  transition.AbortRanks(job, text);
  if (!job.suspicion.empty()) return;
  job.suspicion = std::move(text);
  transition.Act(StartSuspicionTimer{job.id, job.epoch});
}

void OnRankReleased(Transition& transition, JobRecord& job, RankState& rank,
                    const v1::RankChanged& event) {
  if (rank.phase != RankPhase::kFailed) rank.phase = RankPhase::kReleased;
  if (HoldsWorkers(job.state) && !job.aborted) {
    transition.End(
        job, v1::JOB_STATE_FAILED,
        absl::StrCat(RankOnWorker(event.rank(), rank), " left the job after step ", job.step));
  }
}

bool EndsSeat(const v1::RankChanged& event) {
  return event.milestone() == v1::RankChanged::MILESTONE_FINISHED ||
         event.milestone() == v1::RankChanged::MILESTONE_RELEASED;
}

// Frees the worker that reports the end of a seat, which may be one of an epoch that the job has
// long left.
bool FreeSeat(Transition& transition, const v1::RankChanged& event, const Seat& seat) {
  WorkerState* worker = transition.Worker(WorkerId(event.worker_id()));
  if (worker == nullptr || worker->incarnation != Incarnation(event.incarnation())) return false;
  if (!worker->alive || worker->seat != seat) return false;
  if (EndsSeat(event)) worker->seat.reset();
  return true;
}

void OnRankChanged(Transition& transition, const v1::RankChanged& event) {
  const Seat seat{JobId(event.job_id()), Epoch(event.epoch()), event.rank()};
  if (!FreeSeat(transition, event, seat)) return;
  JobRecord* job = transition.Job(seat.job);
  if (job == nullptr || job->epoch != seat.epoch) return;
  if (seat.rank < 0 || seat.rank >= static_cast<int>(job->ranks.size())) return;
  RankState& rank = job->ranks[seat.rank];
  if (rank.worker.value() != event.worker_id()) return;
  if (rank.incarnation != Incarnation(event.incarnation())) return;
  // A worker that was given up and came back: the rank's end is written already.
  if (rank.phase == RankPhase::kLost) return;
  job->step = std::max(job->step, event.step());
  switch (event.milestone()) {
    case v1::RankChanged::MILESTONE_READY:
      return OnRankReady(transition, *job, rank);
    case v1::RankChanged::MILESTONE_FINISHED:
      return OnRankFinished(transition, *job, rank, event);
    case v1::RankChanged::MILESTONE_FAILED:
      return OnRankFailed(transition, *job, rank, event);
    case v1::RankChanged::MILESTONE_RELEASED:
      return OnRankReleased(transition, *job, rank, event);
    default:
      return;
  }
}

void OnSuspicionExpired(Transition& transition, const v1::SuspicionExpired& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch()) || job->suspicion.empty()) return;
  transition.End(*job, v1::JOB_STATE_FAILED, job->suspicion);
}

void OnFormationExpired(Transition& transition, const v1::FormationExpired& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || job->epoch != Epoch(event.epoch())) return;
  if (job->state != v1::JOB_STATE_FORMING) return;
  std::string missing;
  for (size_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (job->ranks[rank].phase != RankPhase::kForming) continue;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", "rank ", rank, " on worker ",
                    job->ranks[rank].worker.value());
  }
  transition.End(
      *job, v1::JOB_STATE_FAILED,
      absl::StrCat("the world did not form in time: ", missing, " did not become ready"));
}

// Whether the event may have added or freed a worker, or shortened the queue.
bool MayPlace(const v1::DurableEvent& event) {
  switch (event.event_case()) {
    case v1::DurableEvent::kCancelRequested:
    case v1::DurableEvent::kWorkerJoined:
    case v1::DurableEvent::kWorkerLost:
      return true;
    case v1::DurableEvent::kRankChanged:
      return EndsSeat(event.rank_changed());
    case v1::DurableEvent::kJobSubmitted:
    case v1::DurableEvent::kSuspicionExpired:
    case v1::DurableEvent::kFormationExpired:
    case v1::DurableEvent::EVENT_NOT_SET:
      return false;
  }
  return false;
}

}  // namespace

Actions Apply(const v1::DurableEvent& event, State& state) {
  state.sequence = event.sequence();
  Transition transition(event.time_unix_ms(), state);
  switch (event.event_case()) {
    case v1::DurableEvent::kJobSubmitted:
      OnJobSubmitted(transition, event.job_submitted());
      break;
    case v1::DurableEvent::kCancelRequested:
      OnCancelRequested(transition, event.cancel_requested());
      break;
    case v1::DurableEvent::kWorkerJoined:
      OnWorkerJoined(transition, event.worker_joined());
      ForgetLostWorkers(transition);
      break;
    case v1::DurableEvent::kWorkerLost:
      OnWorkerLost(transition, event.worker_lost());
      break;
    case v1::DurableEvent::kRankChanged:
      OnRankChanged(transition, event.rank_changed());
      break;
    case v1::DurableEvent::kSuspicionExpired:
      OnSuspicionExpired(transition, event.suspicion_expired());
      break;
    case v1::DurableEvent::kFormationExpired:
      OnFormationExpired(transition, event.formation_expired());
      break;
    case v1::DurableEvent::EVENT_NOT_SET:
      break;
  }
  if (MayPlace(event)) transition.PlaceQueue();
  return transition.TakeActions();
}

}  // namespace sherd
