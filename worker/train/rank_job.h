#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/ledger.h"
#include "prometheus/registry.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/data/batches.h"
#include "worker/holdings/holding_store.h"
#include "worker/model/model.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/step_executor.h"
#include "worker/train/straggler_watch.h"
#include "worker/train/train_metrics.h"
#include "worker/train/trainer.h"

namespace sherd {

// A job's text as the executor reads it.
class JobData final : public BatchSource {
 public:
  // Errors of worker/data name the file.
  static absl::StatusOr<JobData> Open(const v1::JobSpec& spec, const std::string& data_root);

  absl::Status ReadTrain(int64_t step, int64_t index, int32_t* inputs, int32_t* targets) override;
  absl::Status ReadEval(int64_t index, int32_t* inputs, int32_t* targets) override;
  // 0 when the job has no held-out text.
  int64_t eval_micro_batches() const;

 private:
  explicit JobData(TrainingData train) : train_(std::move(train)) {}
  TrainingData train_;
  std::optional<EvaluationData> eval_;
};

// Everything a rank has once its group is formed: memory, model, executor. Runs the steps. Not
// thread-safe but for Stop.
class RankJob {
 public:
  // `mesh` has arenas as plan/ledger.h says; `segment` is where versions are kept, null if none
  // are; the references outlive the job.
  RankJob(const v1::Assignment& assignment, const RankPlan& plan, int threads, RankMesh& mesh,
          HoldingSegment* segment, JobData data, prometheus::Registry& metrics,
          TrainObserver& observer);

  // Goes on after what the assignment's restore plan names. Every rank must call it. Errors of
  // RestoreVersion and of the communicator.
  absl::Status Restore(const HoldingStore& store, const std::string& own_address,
                       const FormationAbort& abort);
  // The steps that are left, evaluations and ledgers; fewer when a pause was requested, which
  // `paused` tells. After an error the communicator is aborted and touches nothing of the job any
  // more.
  absl::Status Run();
  bool paused() const { return paused_; }
  // Writes the rank's part of the weights; see worker/train/write_weights.h.
  absl::StatusOr<std::string> WriteWeights(const std::string& output_root);
  void Stop() { executor_.Stop(); }
  void RequestPause() { executor_.RequestPause(); }

  // The last committed step.
  int64_t committed() const { return commits_.committed(); }
  // From any thread: the last completed step, and what is under way.
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  std::string operation() const { return executor_.operation(); }
  bool waiting() const { return executor_.waiting(); }

 private:
  bool leads() const { return assignment_.rank() == 0; }
  absl::Status RunSteps();
  // One step; whether all are to stop after it.
  absl::StatusOr<bool> RunStep();
  // Commits the last step without waiting for the next one's exchange.
  absl::Status CommitNow();
  // Trains the step, if need be on later samples than its own.
  absl::StatusOr<StepFigures> TrainStep(int64_t step);
  // Has users know of what is unusual in a step.
  void Watch(const StepFigures& figures);
  void Warn(const char* kind, int rank, const std::string& text);
  bool EvaluatesAfter(int64_t step) const;
  absl::Status Evaluate();
  // What the operating system says that this job made the process grow by, in bytes; 0: unknown.
  int64_t ProcessGrowth() const;
  void ReportLedger(const GroupCounts& step_counts);

  const v1::Assignment& assignment_;
  const v1::JobSpec& spec_;
  const RankPlan& plan_;
  const int threads_;
  RankMesh& mesh_;
  HoldingSegment* const segment_;
  TrainObserver& observer_;
  JobData data_;
  MemoryMeter meter_;
  const absl::StatusOr<int64_t> idle_anonymous_bytes_;
  std::unique_ptr<Ops> ops_;
  RankMemory memory_;
  StepCommits commits_;
  std::unique_ptr<TensorGroup> tensor_;  // null in a group of one
  std::unique_ptr<Model> model_;
  StepExecutor executor_;
  StepPlan eval_plan_;
  TrainMetrics metrics_;
  v1::RankLedger reported_ledger_;
  StragglerWatch stragglers_;
  LossWatch losses_;
  std::atomic<int64_t> step_{0};
  int64_t skipped_windows_ = 0;
  bool paused_ = false;
};

}  // namespace sherd
