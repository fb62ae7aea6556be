#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/ledger.h"
#include "prometheus/registry.h"
#include "sherd/v1/layout.pb.h"
#include "worker/checkpoint/cancellable_file_system.h"
#include "worker/comm/data_link.h"
#include "worker/dataset/job_dataset.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/holding_store.h"
#include "worker/holdings/remote_copy.h"
#include "worker/model/model.h"
#include "worker/record/job_record.h"
#include "worker/train/checkpointing.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/restore.h"
#include "worker/train/restore_checkpoint.h"
#include "worker/train/step_executor.h"
#include "worker/train/straggler_watch.h"
#include "worker/train/train_metrics.h"
#include "worker/train/trainer.h"

namespace sherd {

// A job's data as the executor reads them.
class JobData final : public BatchSource {
 public:
  explicit JobData(JobDataset dataset) : dataset_(std::move(dataset)) {}

  absl::Status ReadTrain(int64_t step, int64_t index, int32_t* inputs, int32_t* targets) override;
  int64_t TrainTargets(int64_t step) override { return dataset_.train.Targets(step); }
  absl::Status ReadEval(int64_t index, int32_t* inputs, int32_t* targets) override;
  // Of all files of data.train.
  int64_t corpus_tokens() const { return dataset_.corpus_tokens; }
  // 0 when the job has no held-out text.
  int64_t eval_micro_batches() const;
  // For the job's log.
  const std::vector<std::string>& notes() const { return dataset_.notes; }

 private:
  JobDataset dataset_;
};

// Where a job writes, and where the weights are that it may start from.
struct JobFiles {
  FileSystem& files;
  // What checkpoint.dir lies below; "": anywhere.
  std::string root;
  // What model.from lies below; "": anywhere.
  std::string data_root = {};
  // When the weights find no room.
  RetryTimes full_disk = {};
};
// How long is waited before the `retry`-th retry, counted from 1.
absl::Duration DelayBefore(const RetryTimes& times, int retry);

// Everything a rank has once its group is formed: memory, model, executor. Runs the steps. Not
// thread-safe but for Stop.
class RankJob {
 public:
  // `mesh` has arenas as plan/ledger.h says; `segment` is where versions are kept, null if none
  // are; the references outlive the job. `accelerator`, whose memory the arenas are then of,
  // computes instead of the processor's threads; null: these. What it lacks memory for shows in
  // Restore.
  RankJob(const v1::Assignment& assignment, const RankPlan& plan, int threads, RankMesh& mesh,
          HoldingSegment* segment, JobData data, JobFiles output, prometheus::Registry& metrics,
          TrainObserver& observer, Accelerator* accelerator = nullptr);

  // Goes on after what the assignment's restore plan names, or from the checkpoint that
  // checkpoint.resume does. Every rank must call it. `own.store` must outlive the job; `watch` goes
  // along. Errors of RestoreVersion, RestoreCheckpoint and of the communicator.
  absl::Status Restore(const OwnHoldings& own, const FormationAbort& abort, const CopyWatch& watch);
  // Has versions stored there too; between Restore and Run. Errors of RemoteCopy.
  absl::Status CopyTo(std::vector<std::unique_ptr<RemoteCopy>> copies) {
    return commits_.CopyTo(std::move(copies));
  }
  // The steps that are left, evaluations and ledgers; fewer when a pause was requested, which
  // `paused` tells. After an error the communicator is aborted and touches nothing of the job any
  // more.
  absl::Status Run();
  bool paused() const { return paused_; }
  // Instead of Run: saves the state as a checkpoint; then the job is paused.
  absl::Status SaveAndStop();
  // Instead of Restore and Run, of an assignment that asks for a trial: so many steps from the
  // first weights, for the figures. Nothing is told to the observer, nor written anywhere.
  absl::StatusOr<v1::TrialReport> RunTrial();
  // Writes the rank's part of the weights; see worker/train/write_weights.h. The job's directory.
  // Where there is no room for them it tells, waits, and tries again as `full_disk` says; then it
  // is kFailedPrecondition, with what is needed and free. kAborted after abort.Abort.
  absl::StatusOr<std::string> WriteWeights(const FormationAbort& abort);
  void Stop() {
    executor_.Stop();
    checkpointing_.Cancel();
    weight_files_.Cancel();
  }
  void RequestPause() { executor_.RequestPause(); }

  // The last committed step.
  int64_t committed() const { return commits_.committed(); }
  // The reports of the last committed steps, in order, but for those that are known to have been
  // told: all ranks have the same, but for times.
  std::vector<v1::StepReport> LastSteps() const;
  // From any thread: the last completed step, and what is under way.
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  std::string operation() const;
  bool waiting() const { return executor_.waiting() || mesh_.waiting(); }

 private:
  bool leads() const { return assignment_.rank() == 0; }
  bool saves() const { return plan_.saves || assignment_.save_and_stop(); }
  absl::StatusOr<std::string> Directory() const;
  absl::Status RestoreFromFiles(const FormationAbort& abort, const CopyWatch& watch);
  // Instead of weights drawn at random.
  absl::Status StartFromFolder(const FormationAbort& abort);
  // What is computed with becomes that of the state that the rank owns.
  absl::Status StoreState();
  // The state that the rank owns is that of `step`.
  absl::Status GoOnAfter(int64_t step, const CopyWatch& watch);
  // Has the job's directory ready for checkpoints.
  absl::Status PrepareSaving(const std::optional<RestoredCheckpoint>& restored);
  // Of an error: leaves nothing under way.
  absl::Status EndWith(absl::Status status);
  // Reports of committed steps that a reporter which died did not send, when all ranks have
  // restored.
  absl::Status TellOwedSteps();
  absl::Status RunSteps();
  // Of rank 0: what it tells from now on is written beside the checkpoints.
  absl::Status BeginRecord();
  // One step; whether all are to stop after it.
  absl::StatusOr<bool> RunStep();
  absl::StatusOr<v1::TrialReport> TimeSteps();
  // Commits the last step without waiting for the next one's exchange.
  absl::Status CommitNow();
  // Trains the step, if need be on later samples than its own.
  absl::StatusOr<StepFigures> TrainStep(int64_t step);
  // Has users know of what is unusual in a step.
  void Watch(const StepFigures& figures);
  void Warn(const char* kind, int rank, const std::string& text);
  // There was no room for the weights, before the `retry`-th retry.
  void TellNoRoom(const absl::Status& failure, const std::string& root, int retry);
  // As the job's end.
  absl::Status NoRoom(const absl::Status& failure, const std::string& root) const;
  // Returns after `delay`; kAborted.
  absl::Status AwaitRoom(const FormationAbort& abort, absl::Duration delay);
  bool EvaluatesAfter(int64_t step) const;
  absl::Status Evaluate();
  // What the operating system says that this job made the process grow by, in bytes; 0: unknown.
  int64_t ProcessGrowth() const;
  void ReportLedger(const GroupCounts& step_counts);
  // Counts what this process stores for ranks on other hosts, once they have come.
  void CountStoredFor();

  const v1::Assignment& assignment_;
  const v1::JobSpec& spec_;
  const RankPlan& plan_;
  const int threads_;
  const v1::RankLedger predicted_;
  RankMesh& mesh_;
  HoldingSegment* const segment_;
  const HoldingStore* holdings_ = nullptr;  // known from Restore on
  int64_t stored_for_bytes_ = 0;
  TrainObserver& observer_;
  JobData data_;
  const JobFiles output_;
  // Those of `output_`, as weights are written with them: it counts.
  CancellableFileSystem weight_files_;
  HostDevice host_device_;
  Device& device_;
  MemoryMeter meter_;
  const absl::StatusOr<int64_t> idle_anonymous_bytes_;
  std::unique_ptr<Ops> ops_;
  RankMemory memory_;
  Checkpointing checkpointing_;
  std::unique_ptr<JobRecord> record_;  // of rank 0, while it trains
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
  // What is done after the last step; null before.
  std::atomic<const char*> finishing_{nullptr};
  // By the monotonic clock; 0: it does not wait for that.
  std::atomic<int64_t> awaits_room_since_{0};
  int64_t skipped_windows_ = 0;
  double loss_;  // of the last step; NaN: unknown
  bool paused_ = false;
};

}  // namespace sherd
