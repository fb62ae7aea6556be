#include "coordinator/core/epoch_end.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

bool AllRanks(const JobRecord& job, bool (*holds)(const RankState&)) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), holds);
}

void AskHolders(Transition& transition, JobRecord& job) {
  if (std::exchange(job.holders_asked, true)) return;
  for (const CopyHolder& holder : job.holders) {
    if (holder.left) continue;
    // Of another epoch of the job: it says so when it is released.
    const WorkerState* worker = transition.Worker(holder.worker);
    if (worker != nullptr && worker->seat && worker->seat->job == job.id) continue;
    transition.Act(SendReportHoldings{holder.worker, holder.incarnation, job.id, job.epoch});
  }
}

// It had a chance: what ended it happened while it was there. Of workers that fall silent together
// one after the other is known to have, and may be planned with until it is.
bool HadAChance(const Transition& transition, const JobRecord& job, const EpochEnd& end) {
  return end.kind != EndKind::kSilence || transition.now() - end.unnoticed_ms >= job.times.assigned;
}

}  // namespace

bool HasEnded(const JobRecord& job) {
  return job.state == v1::JOB_STATE_RECOVERING && !IsAtWork(job);
}

void EndEpoch(Transition& transition, JobRecord& job, EpochEnd end) {
  if (!IsUnderway(job.state)) return;
  if (HasEnded(job)) {
    if (!job.suspicion || end.suspicion) return;
    job.suspicion = false;
    job.end_kind = end.kind;
    job.cause = std::move(end.cause);
    job.reason = job.cause;
    return;
  }
  job.paused = false;
  job.suspicion = end.suspicion;
  job.end_kind = end.kind;
  job.cause = std::move(end.cause);
  if (IsUndecided(job)) {
    // Measurements have attempts of their own (trials.h).
  } else if (job.save_and_stop) {
    if (!job.progressed) ++job.failed_saves;
  } else if (HadAChance(transition, job, end)) {
    job.fruitless = job.progressed && job.step > job.high_step ? 0 : job.fruitless + 1;
    if (job.fruitless <= 1) job.past_causes.clear();
  }
  job.times = {.struck = transition.now() - end.unnoticed_ms, .ended = transition.now()};
  transition.AbortRanks(job, job.cause);
  AskHolders(transition, job);
  transition.Enter(job, v1::JOB_STATE_RECOVERING, job.cause);
  NoteLeaving(transition, job);
}

void PauseEpoch(Transition& transition, JobRecord& job, std::string reason) {
  job.paused = true;
  job.end_kind = EndKind::kPlan;
  job.cause = std::move(reason);
  job.times = {.struck = transition.now(), .ended = transition.now()};
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    if (!HasSeat(transition.state(), job, rank)) continue;
    const RankState& state = job.ranks[rank];
    transition.Act(
        SendPause{state.worker, state.incarnation, {job.id, job.epoch, rank}, job.cause});
  }
  transition.Enter(job, v1::JOB_STATE_RECOVERING, job.cause);
  transition.Act(StartPauseTimer{job.id, job.epoch});
}

void EndSavingEpoch(Transition& transition, JobRecord& job) {
  if (!job.progressed) {
    return EndEpoch(
        transition, job,
        {.kind = EndKind::kFailure, .cause = "the job's state could not be saved as a checkpoint"});
  }
  job.paused = true;
  job.end_kind = EndKind::kPlan;
  absl::StrAppend(&job.cause, job.cause.empty() ? "" : "; ", "its state was saved at step ",
                  job.restore.step);
  job.times = {.struck = transition.now(), .ended = transition.now()};
  // Those who leave are free to go.
  std::erase_if(job.answers, [&](const auto& entry) {
    const WorkerState* worker = transition.Worker(entry.first);
    return worker == nullptr || worker->draining;
  });
  AskHolders(transition, job);
  transition.Enter(job, v1::JOB_STATE_RECOVERING, job.cause);
  NoteLeaving(transition, job);
}

void EndMeasuringEpoch(Transition& transition, JobRecord& job, std::string sentence) {
  // As after any planned end, the next world may be larger.
  job.paused = true;
  job.end_kind = EndKind::kPlan;
  job.cause = std::move(sentence);
  job.times = {.struck = transition.now(), .ended = transition.now()};
  AskHolders(transition, job);
  transition.Enter(job, v1::JOB_STATE_RECOVERING, job.cause);
  NoteLeaving(transition, job);
}

void RecordAnswer(JobRecord& job, const WorkerId& worker, Incarnation incarnation,
                  const google::protobuf::RepeatedPtrField<v1::Holding>& holdings) {
  job.answers[worker] = {incarnation, {holdings.begin(), holdings.end()}};
  job.silent.erase(worker);
}

void NoteLeaving(Transition& transition, JobRecord& job) {
  if (job.state != v1::JOB_STATE_RECOVERING) return;
  if (AllRanks(job, [](const RankState& rank) { return rank.left; })) AskHolders(transition, job);
  if (AllLeft(job) && job.times.answered == 0) job.times.answered = transition.now();
}

bool AnyFinished(const JobRecord& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const RankState& rank) { return rank.phase == RankPhase::kFinished; });
}

void SucceedWhenDone(Transition& transition, JobRecord& job) {
  if (!IsUnderway(job.state)) return;
  // Also those that were told to stop: the first of them may have steps and the weights to tell of.
  const bool done = AllRanks(job, [](const RankState& rank) {
    return rank.phase != RankPhase::kForming && rank.phase != RankPhase::kRunning;
  });
  if (done) transition.End(job, v1::JOB_STATE_SUCCEEDED, "");
}

}  // namespace sherd
