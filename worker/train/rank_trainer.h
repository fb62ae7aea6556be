#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "plan/ledger.h"
#include "worker/dataset/job_dataset.h"
#include "worker/train/probe.h"
#include "worker/train/rank_job.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/trainer.h"

namespace sherd {

class Stopwatch {
 public:
  absl::Duration elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The trainer: what Abort, Pause and Position reach, and the way to a job's steps.
class RankTrainer final : public Trainer {
 public:
  // As Trainer::Make; the references outlive it.
  RankTrainer(const v1::Assignment& assignment, const TrainerOptions& options,
              DataListener& listener, HoldingStore& holdings, prometheus::Registry& metrics);

  TrainResult Run(TrainObserver& observer) override;
  void Abort(absl::string_view reason) override;
  void Pause() override;
  TrainPosition Position() override;

 private:
  // The assignment asks for figures and not for training.
  bool measures() const { return assignment_.has_trial(); }
  absl::Status RunAssignment(TrainObserver& observer, TrainResult& result);

  // rank_trainer_job.cc: from the job's files to the end of its steps.
  absl::Status FormAndRun(TrainObserver& observer, TrainResult& result);
  absl::StatusOr<JobDataset> OpenData() const;
  absl::Status RunFormed(const RankPlan& plan, RankMesh& mesh, JobData data, absl::Duration forming,
                         TrainObserver& observer, TrainResult& result);
  absl::Status Train(RankJob& job, absl::string_view introduction, const HoldingSegment* segment,
                     absl::Duration forming, TrainObserver& observer, TrainResult& result);
  // Restores, and has others hold what this rank will store.
  absl::Status GetReady(RankJob& job, const HoldingSegment* segment, absl::Duration forming,
                        TrainObserver& observer, TrainResult& result);
  // What Abort reaches from now on; false, and nothing, when Abort came before.
  bool Publish(RankMesh* mesh, RankJob* job);

  // rank_trainer_trials.cc: what strategy auto asks for. Of the result only figures.
  absl::Status Probe(TrainObserver& observer, TrainResult& result);
  // No step of it is the job's.
  absl::Status Try(RankJob& job, absl::Duration forming, TrainObserver& observer,
                   TrainResult& result);

  const v1::Assignment assignment_;
  const TrainerOptions options_;
  DataListener& listener_;
  HoldingStore& holdings_;
  prometheus::Registry& metrics_;
  const std::unique_ptr<FileSystem> real_files_;
  FileSystem* const files_;
  const Stopwatch timer_;
  FormationAbort formation_abort_;
  std::atomic<int64_t> copied_bytes_{0};
  // What fails now is what this rank does by itself, and not how ranks come together.
  bool own_doing_ = true;

  absl::Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  bool pause_ ABSL_GUARDED_BY(mutex_) = false;
  RankMesh* mesh_ ABSL_GUARDED_BY(mutex_) = nullptr;
  RankJob* job_ ABSL_GUARDED_BY(mutex_) = nullptr;
  MachineProbe* probe_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace sherd
