#include "coordinator/core/transition.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "common/printable_text.h"

namespace sherd {
namespace {

// A line of the coordinator's own in a job's log.
constexpr int32_t kNoRank = -1;
// Of why a rank of a job that has ended did.
constexpr size_t kMostReasonBytes = 256;

// Of a job that has ended, all that only its next epoch would be made of: a thousand of them are
// kept (snapshot_test.cc says in how many bytes).
void KeepTheEnd(JobRecord& job) {
  for (RankState& rank : job.ranks) {
    rank.holders.clear();
    rank.reason = PrintableText(rank.reason, kMostReasonBytes);
  }
  job.holders.clear();
  job.restore = {};
  job.times = {};
  job.cause.clear();
  job.complaints.clear();
  job.patience = {};
  job.answers.clear();
  job.starts.clear();
  job.past_causes.clear();
  job.excluded.clear();
  job.broken.clear();
  job.silent.clear();
}

}  // namespace

bool HasSeat(const State& state, const JobRecord& job, int rank) {
  const WorkerState* worker = FindWorker(state, job.ranks[rank].worker);
  return worker != nullptr && worker->incarnation == job.ranks[rank].incarnation &&
         worker->seat == Seat{job.id, job.epoch, rank};
}

JobRecord* Transition::Job(const JobId& id) {
  const auto found = state_.jobs.find(id);
  return found == state_.jobs.end() ? nullptr : &found->second;
}

WorkerState* Transition::Worker(const WorkerId& id) {
  const auto found = state_.workers.find(id);
  return found == state_.workers.end() ? nullptr : &found->second;
}

void Transition::Publish(const JobRecord& job, v1::JobEvent event) {
  event.set_job_id(job.id.value());
  event.set_time_unix_ms(now_);
  Act(PublishFeed{std::move(event)});
}

void Transition::Tell(const JobRecord& job, std::string line) {
  v1::JobEvent event;
  event.mutable_log()->set_rank(kNoRank);
  event.mutable_log()->set_text(std::move(line));
  Publish(job, std::move(event));
}

void Transition::Enter(JobRecord& job, v1::JobState next, std::string reason) {
  job.state = next;
  job.reason = std::move(reason);
  v1::JobEvent event;
  event.mutable_state()->set_state(next);
  event.mutable_state()->set_reason(job.reason);
  Publish(job, std::move(event));
}

void Transition::End(JobRecord& job, v1::JobState final, std::string reason) {
  std::erase(state_.queue, job.id);
  state_.ended.push_back(job.id);
  job.waiting = Waiting::kNone;
  job.suspicion = false;
  job.ended_unix_ms = now_;
  AbortRanks(job, reason);
  Retain(job, /*ended=*/true);
  KeepTheEnd(job);
  Enter(job, final, std::move(reason));
  v1::JobEvent done;
  done.mutable_done()->set_state(final);
  done.mutable_done()->set_steps(job.step);
  done.mutable_done()->set_reason(job.reason);
  done.mutable_done()->set_weights_path(job.weights_path);
  Publish(job, std::move(done));
}

void Transition::AbortRanks(JobRecord& job, absl::string_view reason) {
  if (job.aborted) return;
  job.aborted = true;
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    if (!HasSeat(state_, job, rank)) continue;
    const RankState& state = job.ranks[rank];
    Act(SendAbort{state.worker, state.incarnation, {job.id, job.epoch, rank}, std::string(reason)});
  }
}

void Transition::Retain(JobRecord& job, bool ended) {
  std::map<WorkerId, Incarnation> keepers;
  for (const auto& [worker, answer] : job.answers) keepers[worker] = answer.incarnation;
  for (const CopyHolder& holder : job.holders) keepers[holder.worker] = holder.incarnation;
  for (const RankState& rank : job.ranks) keepers[rank.worker] = rank.incarnation;
  for (const auto& [worker, incarnation] : keepers) {
    if (!IsAlive(state_, worker, incarnation)) continue;
    Act(SendRetain{worker, incarnation, job.id, job.epoch, ended});
  }
  if (ended) return job.answers.clear();
  // Who has left the epoch already, before the last rank of it was ready, has said what it holds of
  // this one.
  std::erase_if(job.answers, [&](const auto& entry) {
    return std::none_of(job.ranks.begin(), job.ranks.end(), [&](const RankState& rank) {
      return rank.left && rank.worker == entry.first &&
             rank.incarnation == entry.second.incarnation;
    });
  });
  for (auto& [worker, answer] : job.answers) {
    std::erase_if(answer.holdings,
                  [&](const v1::Holding& held) { return Epoch(held.epoch()) < job.epoch; });
  }
}

}  // namespace sherd
