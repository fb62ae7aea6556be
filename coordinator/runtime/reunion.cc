#include "coordinator/runtime/reunion.h"

namespace sherd {
namespace {

// The rank of `worker`'s seat is this life of this worker; only then may it learn the epoch's
// secret.
bool Holds(const JobRecord& job, const WorkerState& worker) {
  const int rank = worker.seat->rank;
  if (rank < 0 || rank >= static_cast<int>(job.ranks.size())) return false;
  return job.ranks[rank].worker == worker.id && job.ranks[rank].incarnation == worker.incarnation;
}

}  // namespace

bool WorksIn(const State& state, const WorkerState& worker) {
  if (!worker.alive || !worker.seat) return false;
  const JobRecord* job = FindJob(state, worker.seat->job);
  return job != nullptr && HoldsWorkers(job->state) && job->epoch == worker.seat->epoch &&
         Holds(*job, worker);
}

std::optional<v1::SessionResponse> MissedMessage(const State& state, const WorkerState& worker,
                                                 const v1::Hello& hello,
                                                 AssignmentBuilder& assignments) {
  if (!worker.seat) {
    if (hello.job_id().empty()) return std::nullopt;
    const Seat stale{JobId(hello.job_id()), Epoch(hello.epoch()), hello.rank()};
    return AbortMessage(stale, "the job has ended");
  }
  const JobRecord* job = FindJob(state, worker.seat->job);
  const bool wanted = job != nullptr && HoldsWorkers(job->state) && !job->aborted &&
                      job->epoch == worker.seat->epoch && Holds(*job, worker);
  if (!wanted) {
    return AbortMessage(*worker.seat, job == nullptr ? "the job is unknown" : job->reason);
  }
  const int rank = worker.seat->rank;
  // A rank that was ready and is unknown to its worker has ended; its report is on the way.
  if (!hello.job_id().empty() || job->ranks[rank].phase != RankPhase::kForming) {
    return std::nullopt;
  }
  v1::SessionResponse message;
  *message.mutable_assign() = assignments.Build(state, *job, rank);
  return message;
}

bool OwesReport(const State& state, const WorkerState& worker, const v1::Hello& hello) {
  if (!hello.job_id().empty() || !WorksIn(state, worker)) return false;
  const JobRecord& job = *FindJob(state, worker.seat->job);
  return !job.aborted && job.ranks[worker.seat->rank].phase == RankPhase::kRunning;
}

v1::SessionResponse AbortMessage(const Seat& seat, const std::string& reason) {
  v1::SessionResponse message;
  message.mutable_abort()->set_job_id(seat.job.value());
  message.mutable_abort()->set_epoch(seat.epoch.value());
  message.mutable_abort()->set_rank(seat.rank);
  message.mutable_abort()->set_reason(reason);
  return message;
}

}  // namespace sherd
