#include "coordinator/core/transition.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "coordinator/core/directories.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// A line of the coordinator's own in a job's log.
constexpr int32_t kNoRank = -1;

}  // namespace

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

void Transition::Enter(JobRecord& job, v1::JobState next, std::string reason) {
  job.state = next;
  job.reason = std::move(reason);
  v1::JobEvent event;
  event.mutable_state()->set_state(next);
  event.mutable_state()->set_reason(job.reason);
  Publish(job, std::move(event));
  if (next == v1::JOB_STATE_RUNNING) {
    v1::JobEvent formed;
    formed.mutable_epoch()->set_epoch(job.epoch.value());
    formed.mutable_epoch()->set_world(static_cast<int32_t>(job.ranks.size()));
    formed.mutable_epoch()->set_reason("every rank is ready");
    Publish(job, std::move(formed));
  }
}

void Transition::End(JobRecord& job, v1::JobState final, std::string reason) {
  std::erase(state_.queue, job.id);
  job.waiting = Waiting::kNone;
  job.suspicion.clear();
  job.ended_unix_ms = now_;
  AbortRanks(job, reason);
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
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankState& state = job.ranks[rank];
    const Seat seat{job.id, job.epoch, static_cast<int>(rank)};
    const WorkerState* worker = Worker(state.worker);
    if (worker == nullptr || worker->seat != seat) continue;
    Act(SendAbort{state.worker, state.incarnation, seat, std::string(reason)});
  }
}

void Transition::Enqueue(JobRecord& job) {
  // From the back: most jobs go there.
  const auto before = std::find_if(
      state_.queue.rbegin(), state_.queue.rend(),
      [&](const JobId& id) { return state_.jobs.at(id).spec.priority() >= job.spec.priority(); });
  state_.queue.insert(before.base(), job.id);
}

void Transition::PlaceQueue() {
  WorkerPools pools(state_);
  const std::vector<JobId> queue = state_.queue;
  const JobRecord* ahead = nullptr;
  for (const JobId& id : queue) {
    JobRecord& job = state_.jobs.at(id);
    PlaceNext(job, pools, ahead);
    // The workers that it found are for the others.
    if (IsTerminal(job.state)) return PlaceQueue();
  }
}

bool Transition::RefuseDirectory(JobRecord& job) {
  const JobRecord* other = FindJobInDirectory(state_, job.id, job.spec, HoldsWorkers);
  if (other == nullptr) return false;
  End(job, v1::JOB_STATE_FAILED,
      absl::StrCat("job ", other->id.value(), " is ", std::string(NameOf(other->state)),
                   " and writes to checkpoint.dir \"", other->spec.checkpoint().dir(),
                   "\", this one would to \"", job.spec.checkpoint().dir(),
                   "\"; submit it again with another checkpoint.dir"));
  return true;
}

void Transition::PlaceSubmitted(JobRecord& job) {
  WorkerPools pools(state_);
  if (pools.AnyIdle() || state_.queue.back() != job.id) return PlaceQueue();
  const auto first = std::find_if(state_.queue.begin(), state_.queue.end(), [&](const JobId& id) {
    return state_.jobs.at(id).waiting == Waiting::kIdleWorkers;
  });
  const JobRecord* ahead = first == state_.queue.end() ? nullptr : Job(*first);
  PlaceNext(job, pools, ahead);
}

void Transition::PlaceNext(JobRecord& job, WorkerPools& pools, const JobRecord*& ahead) {
  GangPlacement placement = pools.Place(job);
  if (!placement.workers.empty()) {
    if (!RefuseDirectory(job)) Form(job, placement.workers);
    return;
  }
  if (placement.waiting == Waiting::kIdleWorkers) {
    if (ahead == nullptr) {
      ahead = &job;
    } else {
      placement.waiting = Waiting::kEarlierJob;
      absl::StrAppend(&placement.reason, "; ", ahead->id.value(), " comes first");
    }
  }
  Wait(job, placement.waiting, std::move(placement.reason));
}

void Transition::Wait(JobRecord& job, Waiting waiting, std::string reason) {
  const bool news = job.waiting != waiting;
  job.waiting = waiting;
  // Counts change with every worker that comes and goes; the feed tells only what kind of wait it
  // is.
  job.reason = reason;
  if (news) Enter(job, v1::JOB_STATE_QUEUED, std::move(reason));
}

void Transition::Form(JobRecord& job, const std::vector<WorkerId>& workers) {
  std::erase(state_.queue, job.id);
  job.waiting = Waiting::kNone;
  job.epoch = Epoch(job.epoch.value() + 1);
  job.aborted = false;
  job.ranks.clear();
  for (const WorkerId& id : workers) {
    WorkerState& worker = state_.workers.at(id);
    const Seat seat{job.id, job.epoch, static_cast<int>(job.ranks.size())};
    worker.seat = seat;
    job.ranks.push_back({id, worker.incarnation, RankPhase::kForming, ""});
    Act(SendAssign{id, worker.incarnation, seat});
  }
  Enter(job, v1::JOB_STATE_FORMING,
        absl::StrCat("epoch ", job.epoch.value(), " forms on ",
                     Counted(static_cast<int64_t>(workers.size()), "worker")));
  WarnOfMixedNumerics(job);
  Act(StartFormationTimer{job.id, job.epoch});
}

void Transition::WarnOfMixedNumerics(const JobRecord& job) {
  const WorkerState& first = *Worker(job.ranks.front().worker);
  for (const RankState& rank : job.ranks) {
    const WorkerState& other = *Worker(rank.worker);
    if (other.numerics_fingerprint == first.numerics_fingerprint) continue;
    v1::JobEvent line;
    line.mutable_log()->set_rank(kNoRank);
    line.mutable_log()->set_text(absl::StrCat(
        "the world is mixed: ", first.id.value(), " computes with \"", first.numerics_fingerprint,
        "\", ", other.id.value(), " with \"", other.numerics_fingerprint,
        "\"; bits are not promised to be equal to those of other runs"));
    Publish(job, std::move(line));
    return;
  }
}

}  // namespace sherd
