#pragma once

#include "worker/train/trainer.h"

namespace sherd {

// Between a rank that only measures and who hears of it: that it is ready is passed on, what it
// would tell of training is not.
class TrialObserver final : public TrainObserver {
 public:
  // `outer` outlives it.
  explicit TrialObserver(TrainObserver& outer) : outer_(outer) {}

  void OnReady(const v1::RankReady& ready) override { outer_.OnReady(ready); }
  void OnStep(const v1::StepReport&) override {}
  void OnEval(const v1::EvalReport&) override {}
  void OnLedger(const v1::RankLedger&) override {}
  void OnLog(absl::string_view) override {}
  void OnWarning(const v1::Warning&) override {}
  void OnCheckpoint(const v1::CheckpointReport&) override {}

 private:
  TrainObserver& outer_;
};

}  // namespace sherd
