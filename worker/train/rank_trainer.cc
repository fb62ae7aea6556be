#include "worker/train/rank_trainer.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/assignment_rules.h"
#include "worker/train/trial_observer.h"

namespace sherd {
namespace {

// Whether a failure of this kind would be the same at another attempt.
bool WouldRepeat(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace

RankTrainer::RankTrainer(const v1::Assignment& assignment, const TrainerOptions& options,
                         DataListener& listener, HoldingStore& holdings,
                         prometheus::Registry& metrics)
    : assignment_(assignment),
      options_(options),
      listener_(listener),
      holdings_(holdings),
      metrics_(metrics),
      real_files_(MakePosixFileSystem()),
      files_(options.files == nullptr ? real_files_.get() : options.files) {}

TrainResult RankTrainer::Run(TrainObserver& observer) {
  TrainResult result;
  result.status = RunAssignment(observer, result);
  if (result.status.ok() && result.trial) return result;
  if (result.status.ok()) {
    observer.OnLog(
        absl::StrCat(result.paused ? "paused" : "finished", " after step ", result.step));
    return result;
  }
  {
    absl::MutexLock lock(&mutex_);
    // A cause of the rank's own is the better reason.
    if (aborted_ && absl::IsAborted(result.status)) {
      result.status = absl::AbortedError(formation_abort_.reason());
      result.lost_peer = -1;
      result.lost_holder.clear();
    }
  }
  result.final = own_doing_ && result.lost_peer < 0 && WouldRepeat(result.status.code());
  observer.OnLog(absl::StrCat("ended after step ", result.step, " at ", result.operation, ": ",
                              std::string(result.status.message())));
  return result;
}

void RankTrainer::Abort(absl::string_view reason) {
  formation_abort_.Abort(reason);
  absl::MutexLock lock(&mutex_);
  aborted_ = true;
  // The reason first: a job that has stopped tells its peers why, and that must not be all.
  if (mesh_ != nullptr) mesh_->Abort(reason);
  if (probe_ != nullptr) probe_->Abort(reason);
  if (job_ != nullptr) job_->Stop();
}

void RankTrainer::Pause() {
  absl::MutexLock lock(&mutex_);
  pause_ = true;
  if (job_ != nullptr) job_->RequestPause();
}

TrainPosition RankTrainer::Position() {
  absl::MutexLock lock(&mutex_);
  TrainPosition position;
  position.operation = "forming, or past its work";
  position.copied_bytes = copied_bytes_.load(std::memory_order_relaxed);
  if (probe_ != nullptr) position.operation = probe_->operation();
  if (job_ == nullptr) return position;
  position.step = job_->step();
  position.operation = job_->operation();
  position.waiting = job_->waiting();
  if (position.waiting) position.missing = mesh_->missing();
  return position;
}

absl::Status RankTrainer::RunAssignment(TrainObserver& observer, TrainResult& result) {
  result.operation = "reading the assignment";
  SHERD_RETURN_IF_ERROR(CheckAssignment(assignment_));
  if (!measures()) return FormAndRun(observer, result);
  TrialObserver silent(observer);
  return assignment_.trial().steps() > 0 ? FormAndRun(silent, result) : Probe(silent, result);
}

std::unique_ptr<Trainer> Trainer::Make(const v1::Assignment& assignment,
                                       const TrainerOptions& options, DataListener& listener,
                                       HoldingStore& holdings, prometheus::Registry& metrics) {
  return std::make_unique<RankTrainer>(assignment, options, listener, holdings, metrics);
}

}  // namespace sherd
