#include "coordinator/runtime/views.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "common/printable_text.h"

namespace sherd {
namespace {

// A log of an earlier version may hold longer ones.
constexpr size_t kMostReasonBytes = 8192;

absl::string_view NameOf(RankPhase phase) {
  switch (phase) {
    case RankPhase::kForming:
      return "forming";
    case RankPhase::kRunning:
      return "running";
    case RankPhase::kFinished:
      return "finished";
    case RankPhase::kFailed:
      return "failed";
    case RankPhase::kLost:
      return "lost";
    case RankPhase::kReleased:
      return "released";
  }
  return "";
}

}  // namespace

v1::Job ViewJob(const JobRecord& job, const JobFeed& feed, JobDetail detail) {
  const Progress progress = feed.ProgressOf(job.id);
  const Latest* const latest = feed.LatestOf(job.id);
  v1::Job view;
  view.set_id(job.id.value());
  view.set_name(job.spec.name());
  view.set_state(job.state);
  view.set_reason(PrintableText(job.reason, kMostReasonBytes));
  view.set_epoch(job.epoch.value());
  view.set_step(std::max(job.step, progress.step));
  view.set_loss(progress.loss);
  view.set_submitted_unix_ms(job.submitted_unix_ms);
  view.set_ended_unix_ms(job.ended_unix_ms);
  view.set_weights_path(job.weights_path);
  if (detail == JobDetail::kSummary) return view;
  *view.mutable_spec() = job.spec;
  if (latest != nullptr && latest->step) *view.mutable_last_step() = *latest->step;
  if (latest != nullptr && latest->epoch) *view.mutable_last_epoch() = *latest->epoch;
  if (IsUndecided(job)) {
    // What an epoch measures with is not the job's.
    *view.mutable_spec()->mutable_parallel() = job.trials.asked;
    view.mutable_spec()->mutable_train()->set_micro_batch(job.trials.asked_micro_batch);
  }
  if (job.trials.decision) *view.mutable_decision() = *job.trials.decision;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    v1::RankStatus* status = view.add_ranks();
    status->set_rank(static_cast<int32_t>(rank));
    status->set_worker_id(job.ranks[rank].worker.value());
    status->set_status(std::string(NameOf(job.ranks[rank].phase)));
    status->set_reason(PrintableText(job.ranks[rank].reason, kMostReasonBytes));
    if (latest == nullptr) continue;
    const auto peak = latest->peaks.find(static_cast<int32_t>(rank));
    if (peak != latest->peaks.end()) *status->mutable_peak() = peak->second;
  }
  return view;
}

absl::string_view StatusOf(const WorkerState& worker) {
  if (!worker.alive) return worker.dismissed ? "drained" : "lost";
  if (worker.draining) return "draining";
  return worker.seat ? "busy" : "idle";
}

v1::Worker ViewWorker(const WorkerState& worker) {
  v1::Worker view;
  view.set_id(worker.id.value());
  view.set_device(worker.device);
  view.set_host(worker.host);
  view.set_incarnation(worker.incarnation.value());
  view.set_status(std::string(StatusOf(worker)));
  if (worker.seat) {
    view.set_job_id(worker.seat->job.value());
    view.set_rank(worker.seat->rank);
  }
  return view;
}

}  // namespace sherd
