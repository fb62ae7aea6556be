#pragma once

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
#include "worker/data/batches.h"
#include "worker/model/model.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/step_executor.h"
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
  // `mesh` has arenas as plan/ledger.h says; the references outlive the job.
  RankJob(const v1::Assignment& assignment, const RankPlan& plan, int threads, RankMesh& mesh,
          JobData data, prometheus::Registry& metrics);

  // All steps, evaluations and ledgers. The last completed step is in step().
  // After an error the communicator is aborted and touches nothing of the job any more.
  absl::Status Run(TrainObserver& observer);
  // Writes the rank's part of the weights; see worker/train/write_weights.h.
  absl::StatusOr<std::string> WriteWeights(const std::string& output_root);
  void Stop() { executor_.Stop(); }

  int64_t step() const { return step_; }
  std::string operation() const { return executor_.operation(); }

 private:
  absl::Status RunSteps(TrainObserver& observer);
  absl::Status RunStep(TrainObserver& observer);
  absl::Status Evaluate(TrainObserver& observer);
  // What the operating system says that this job made the process grow by, in bytes; 0: unknown.
  int64_t ProcessGrowth() const;
  void ReportLedger(const GroupCounts& step_counts, TrainObserver& observer);

  const v1::Assignment& assignment_;
  const v1::JobSpec& spec_;
  const RankPlan& plan_;
  const int threads_;
  RankMesh& mesh_;
  JobData data_;
  MemoryMeter meter_;
  const absl::StatusOr<int64_t> idle_anonymous_bytes_;
  std::unique_ptr<Ops> ops_;
  RankMemory memory_;
  std::unique_ptr<Model> model_;
  StepExecutor executor_;
  StepPlan eval_plan_;
  TrainMetrics metrics_;
  v1::RankLedger reported_ledger_;
  int64_t step_ = 0;
};

}  // namespace sherd
