#include "coordinator/core/reducer.h"

#include "coordinator/core/rank_events.h"
#include "coordinator/core/schedule.h"
#include "coordinator/core/transition.h"
#include "coordinator/core/trials.h"
#include "coordinator/core/worker_events.h"

namespace sherd {
namespace {

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
  BeginTrials(job);
  state.jobs_by_request[event.request_id()] = job.id;
  Enqueue(transition, job);
  transition.Enter(job, v1::JOB_STATE_QUEUED, "submitted");
  ScheduleSubmitted(transition, job);
}

void OnCancelRequested(Transition& transition, const v1::CancelRequested& event) {
  JobRecord* job = transition.Job(JobId(event.job_id()));
  if (job == nullptr || IsTerminal(job->state)) return;
  transition.End(*job, v1::JOB_STATE_CANCELLED, "cancelled by a user");
}

// Whether the event may let a job be placed, grow or move.
bool MayPlace(const v1::DurableEvent& event, const State& state) {
  if (event.has_job_submitted()) return false;
  if (!event.has_rank_changed()) return true;
  if (event.rank_changed().milestone() != v1::RankChanged::MILESTONE_READY) return true;
  // A large world becomes ready rank by rank.
  const JobRecord* job = FindJob(state, JobId(event.rank_changed().job_id()));
  return job != nullptr && job->state == v1::JOB_STATE_RUNNING;
}

// Of the jobs that have ended the oldest go. Not at once, so that who holds anything of one is told
// that it is over.
void ForgetEnded(Transition& transition) {
  State& state = transition.state();
  while (state.ended.size() > kEndedJobsKept) {
    const auto oldest = state.jobs.find(state.ended.front());
    if (transition.now() - oldest->second.ended_unix_ms <= kEndedToldMs) return;
    transition.Act(DropFeed{oldest->first});
    state.jobs_by_request.erase(oldest->second.request_id);
    state.jobs.erase(oldest);
    state.ended.pop_front();
  }
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
      break;
    case v1::DurableEvent::kWorkerLost:
      OnWorkerLost(transition, event.worker_lost());
      break;
    case v1::DurableEvent::kRankChanged:
      OnRankChanged(transition, event.rank_changed());
      break;
    case v1::DurableEvent::kFormationExpired:
      OnFormationExpired(transition, event.formation_expired());
      break;
    case v1::DurableEvent::kEpochProgressed:
      OnEpochProgressed(transition, event.epoch_progressed());
      break;
    case v1::DurableEvent::kHangDetected:
      OnHangDetected(transition, event.hang_detected());
      break;
    case v1::DurableEvent::kDrainRequested:
      OnDrainRequested(transition, event.drain_requested());
      break;
    case v1::DurableEvent::kHoldingsReported:
      OnHoldingsReported(transition, event.holdings_reported());
      break;
    case v1::DurableEvent::kCheckpointSaved:
      OnCheckpointSaved(transition, event.checkpoint_saved());
      break;
    case v1::DurableEvent::kPatienceExpired:
      OnPatienceExpired(transition, event.patience_expired());
      break;
    case v1::DurableEvent::kSuspicionExpired:
    case v1::DurableEvent::EVENT_NOT_SET:
      break;
  }
  if (MayPlace(event, state)) Schedule(transition);
  ForgetEnded(transition);
  return transition.TakeActions();
}

}  // namespace sherd
