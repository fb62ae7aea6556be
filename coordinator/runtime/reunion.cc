#include "coordinator/runtime/reunion.h"

#include <algorithm>
#include <map>
#include <optional>

#include "coordinator/core/copies.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/worker_events.h"

namespace sherd {
namespace {

// The rank of `worker`'s seat is this life of this worker; only then may it learn the epoch's
// secret.
bool Holds(const JobRecord& job, const WorkerState& worker) {
  const int rank = worker.seat->rank;
  if (rank < 0 || rank >= static_cast<int>(job.ranks.size())) return false;
  return job.ranks[rank].worker == worker.id && job.ranks[rank].incarnation == worker.incarnation;
}

// What it missed of its seat, or of one that it believes to have.
std::optional<v1::SessionResponse> MissedOfSeat(const State& state, const WorkerState& worker,
                                                const v1::Hello& hello,
                                                AssignmentBuilder& assignments,
                                                const Reported& reported) {
  if (!worker.seat) {
    if (hello.job_id().empty()) return std::nullopt;
    const Seat stale{JobId(hello.job_id()), Epoch(hello.epoch()), hello.rank()};
    return AbortMessage(stale, "the job has ended");
  }
  const JobRecord* job = FindJob(state, worker.seat->job);
  if (!WorksIn(state, worker)) {
    return AbortMessage(*worker.seat, job == nullptr ? "the job is unknown" : job->reason);
  }
  const int rank = worker.seat->rank;
  if (!hello.job_id().empty()) {
    if (!job->paused) return std::nullopt;
    return PauseMessage(*worker.seat, job->cause);
  }
  // A rank that was ready and is unknown to its worker has ended; its report is on the way.
  if (job->ranks[rank].phase != RankPhase::kForming) return std::nullopt;
  v1::SessionResponse message;
  *message.mutable_assign() = assignments.Build(state, *job, rank, reported);
  return message;
}

// Whether the ranks that it is to store shards of have come is known when all are ready.
std::optional<v1::SessionResponse> MissedHold(const State& state, const JobRecord& job,
                                              const WorkerState& worker) {
  if (job.state != v1::JOB_STATE_FORMING || !IsNamed(job, worker)) return std::nullopt;
  const std::map<WorkerId, std::vector<int>> stored = StoredOverNetwork(state, job);
  const auto found = stored.find(worker.id);
  if (found == stored.end()) return std::nullopt;
  return HoldMessage(job, found->second);
}

bool OwesHoldings(const JobRecord& job, const WorkerState& worker) {
  if (job.state != v1::JOB_STATE_RECOVERING || !job.holders_asked) return false;
  // It says so when it is released.
  if (worker.seat && worker.seat->job == job.id) return false;
  return std::any_of(job.holders.begin(), job.holders.end(), [&](const CopyHolder& holder) {
    return holder.worker == worker.id && holder.incarnation == worker.incarnation && !holder.left;
  });
}

}  // namespace

bool WorksIn(const State& state, const WorkerState& worker) {
  if (!worker.alive || !worker.seat) return false;
  const JobRecord* job = FindJob(state, worker.seat->job);
  return job != nullptr && job->epoch == worker.seat->epoch && Holds(*job, worker) &&
         IsAtWork(*job) && !job->ranks[worker.seat->rank].left;
}

std::vector<v1::SessionResponse> MissedMessages(const State& state, const WorkerState& worker,
                                                const v1::Hello& hello,
                                                AssignmentBuilder& assignments,
                                                const Reported& reported, int64_t now_unix_ms) {
  std::vector<v1::SessionResponse> missed;
  for (const auto& [id, job] : state.jobs) {
    if (std::optional<v1::SessionResponse> message = MissedHold(state, job, worker)) {
      missed.push_back(*std::move(message));
    }
  }
  if (std::optional<v1::SessionResponse> message =
          MissedOfSeat(state, worker, hello, assignments, reported)) {
    missed.push_back(*std::move(message));
  }
  for (const auto& [id, job] : state.jobs) {
    if (OwesHoldings(job, worker)) missed.push_back(ReportHoldingsMessage(id, job.epoch));
    const bool ended = IsTerminal(job.state) && now_unix_ms - job.ended_unix_ms <= kEndedToldMs;
    // Of the last epoch that restored, also when it has ended since and others are planned: whoever
    // was away may hold what it had of an older one, named by the job or not.
    const bool restored = IsUnderway(job.state) && job.restored.value() > 1;
    if (ended || restored) {
      missed.push_back(RetainMessage(id, ended ? job.epoch : job.restored, ended));
    }
  }
  if (worker.dismissed) missed.push_back(ShutdownMessage(worker.drain_reason));
  return missed;
}

bool SpeaksBeyond(const State& state, const WorkerState& worker, const v1::Hello& hello) {
  if (hello.job_id().empty()) return false;
  const Seat seat{JobId(hello.job_id()), Epoch(hello.epoch()), hello.rank()};
  return worker.seat != seat && IsBeyond(state, seat);
}

bool OwesReport(const State& state, const WorkerState& worker, const v1::Hello& hello) {
  if (!hello.job_id().empty() || !WorksIn(state, worker)) return false;
  const JobRecord& job = *FindJob(state, worker.seat->job);
  return job.ranks[worker.seat->rank].phase == RankPhase::kRunning;
}

v1::SessionResponse AbortMessage(const Seat& seat, const std::string& reason) {
  v1::SessionResponse message;
  message.mutable_abort()->set_job_id(seat.job.value());
  message.mutable_abort()->set_epoch(seat.epoch.value());
  message.mutable_abort()->set_rank(seat.rank);
  message.mutable_abort()->set_reason(reason);
  return message;
}

v1::SessionResponse PauseMessage(const Seat& seat, const std::string& reason) {
  v1::SessionResponse message;
  message.mutable_pause()->set_job_id(seat.job.value());
  message.mutable_pause()->set_epoch(seat.epoch.value());
  message.mutable_pause()->set_reason(reason);
  return message;
}

v1::SessionResponse HoldMessage(const JobRecord& job, const std::vector<int>& owners) {
  v1::SessionResponse message;
  v1::Hold& hold = *message.mutable_hold();
  hold.set_job_id(job.id.value());
  hold.set_epoch(job.epoch.value());
  hold.set_world(static_cast<int32_t>(job.ranks.size()));
  hold.mutable_owners()->Add(owners.begin(), owners.end());
  hold.set_secret(SecretOf(job, job.epoch));
  return message;
}

v1::SessionResponse ReportHoldingsMessage(const JobId& job, Epoch epoch) {
  v1::SessionResponse message;
  message.mutable_report_holdings()->set_job_id(job.value());
  message.mutable_report_holdings()->set_epoch(epoch.value());
  return message;
}

v1::SessionResponse RetainMessage(const JobId& job, Epoch epoch, bool ended) {
  v1::SessionResponse message;
  message.mutable_retain()->set_job_id(job.value());
  message.mutable_retain()->set_epoch(epoch.value());
  message.mutable_retain()->set_ended(ended);
  return message;
}

v1::SessionResponse ShutdownMessage(const std::string& reason) {
  v1::SessionResponse message;
  message.mutable_shutdown()->set_reason(reason);
  return message;
}

}  // namespace sherd
