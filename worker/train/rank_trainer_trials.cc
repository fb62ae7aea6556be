// What strategy auto has a rank measure: a probe, or a trial of a layout.
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/train/rank_trainer.h"

namespace sherd {

absl::Status RankTrainer::Probe(TrainObserver& observer, TrainResult& result) {
  own_doing_ = false;
  MachineProbe probe(assignment_, options_.threads, listener_);
  {
    absl::MutexLock lock(&mutex_);
    if (aborted_) return absl::AbortedError("aborted while forming");
    probe_ = &probe;
  }
  absl::StatusOr<v1::TrialReport> report =
      probe.Run(formation_abort_, [&observer] { observer.OnReady({}); });
  result.operation = probe.operation();
  result.lost_peer = probe.lost_peer();
  if (report.ok()) result.trial = *std::move(report);
  absl::MutexLock lock(&mutex_);
  probe_ = nullptr;
  return report.status();
}

absl::Status RankTrainer::Try(RankJob& job, absl::Duration forming, TrainObserver& observer,
                              TrainResult& result) {
  v1::RankReady formed;
  formed.set_form_seconds(absl::ToDoubleSeconds(forming));
  observer.OnReady(formed);
  own_doing_ = true;
  absl::StatusOr<v1::TrialReport> report = job.RunTrial();
  result.operation = absl::StrCat("step ", job.step() + 1, " of a trial, ", job.operation());
  if (report.ok()) result.trial = *std::move(report);
  return report.status();
}

}  // namespace sherd
