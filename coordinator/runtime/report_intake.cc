#include "coordinator/runtime/report_intake.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "coordinator/runtime/rank_reports.h"
#include "coordinator/runtime/report_rules.h"

namespace sherd {

absl::Status ReportIntake::Take(const WorkerId& worker, Incarnation incarnation,
                                const v1::RankReport& report) {
  const JobRecord* job = JobOf(worker, incarnation, report);
  if (job != nullptr) {
    SHERD_RETURN_IF_ERROR(
        CheckReport(*job, job->ranks[report.rank()], journal_.feed().ProgressOf(job->id), report));
  }
  std::optional<v1::RankChanged> milestone = MilestoneOf(report);
  if (!milestone) {
    if (job != nullptr) Publish(*job, report);
    return absl::OkStatus();
  }
  milestone->set_worker_id(worker.value());
  milestone->set_incarnation(incarnation.value());
  if (job != nullptr && report.has_finished()) PublishLastSteps(*job, report.finished());
  // What the feed has was committed, whatever its ranks know of it.
  if (job != nullptr && report.has_released()) {
    milestone->set_step(std::max(milestone->step(), journal_.feed().ProgressOf(job->id).step));
  }
  v1::DurableEvent event;
  *event.mutable_rank_changed() = *std::move(milestone);
  append_(std::move(event));
  return absl::OkStatus();
}

bool ReportIntake::TakeStep(const JobRecord& job, int64_t step) {
  // An epoch may begin with steps that the one before it had reported just yet, or had not.
  if (step <= journal_.feed().ProgressOf(job.id).step) return false;
  if (job.progressed || step <= job.restore.step) return true;
  v1::DurableEvent event;
  event.mutable_epoch_progressed()->set_job_id(job.id.value());
  event.mutable_epoch_progressed()->set_epoch(job.epoch.value());
  event.mutable_epoch_progressed()->set_step(step);
  append_(std::move(event));
  return true;
}

void ReportIntake::PublishLastSteps(const JobRecord& job, const v1::RankFinished& finished) {
  for (const v1::StepReport& last : finished.last_steps()) {
    v1::RankReport report;
    report.set_job_id(job.id.value());
    report.set_epoch(job.epoch.value());
    *report.mutable_step() = last;
    Publish(job, report);
  }
}

void ReportIntake::Publish(const JobRecord& job, const v1::RankReport& report) {
  std::optional<v1::JobEvent> entry = FeedEntryOf(report);
  if (!entry) return;
  const Progress progress = journal_.feed().ProgressOf(job.id);
  if (entry->has_step() && !TakeStep(job, entry->step().step())) return;
  if (entry->has_eval() && progress.eval_step > 0 && entry->eval().step() <= progress.eval_step) {
    return;
  }
  if (std::optional<v1::CheckpointSaved> saved = SavedCheckpointOf(report)) {
    v1::DurableEvent event;
    *event.mutable_checkpoint_saved() = *std::move(saved);
    append_(std::move(event));
  }
  entry->set_time_unix_ms(absl::ToUnixMillis(clock_.Now()));
  journal_.Publish(*std::move(entry));
}

const JobRecord* ReportIntake::JobOf(const WorkerId& worker, Incarnation incarnation,
                                     const v1::RankReport& report) const {
  const JobRecord* job = FindJob(journal_.state(), JobId(report.job_id()));
  if (job == nullptr || !IsUnderway(job->state) || job->epoch != Epoch(report.epoch())) {
    return nullptr;
  }
  if (report.rank() < 0 || report.rank() >= static_cast<int>(job->ranks.size())) return nullptr;
  const RankState& rank = job->ranks[report.rank()];
  const bool own = rank.worker == worker && rank.incarnation == incarnation && !rank.left;
  return own ? job : nullptr;
}

}  // namespace sherd
