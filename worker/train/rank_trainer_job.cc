// A job of a rank: its files, its groups, its steps, its weights.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/device_ledger.h"
#include "plan/groups.h"
#include "worker/checkpoint/save.h"
#include "worker/data/job_tokens.h"
#include "worker/data/roots.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/lost_holder.h"
#include "worker/train/device_memory.h"
#include "worker/train/hand_over_shard.h"
#include "worker/train/host_memory.h"
#include "worker/train/introduction.h"
#include "worker/train/mesh_formation.h"
#include "worker/train/predicted_ledger.h"
#include "worker/train/rank_groups.h"
#include "worker/train/rank_trainer.h"
#include "worker/train/restore.h"
#include "worker/train/vote.h"

namespace sherd {
namespace {

// Whether the device has attention for the model's heads. kFailedPrecondition names it.
absl::Status CheckHeads(const ModelShape& model, const Accelerator& device) {
  const std::optional<int64_t> most = device.most_head_channels();
  if (!most || model.head_size() <= *most) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("heads of this job have ", model.head_size(), " channels, and ", device.name(),
                   " takes at most ", *most, "; use more heads, or workers on processors alone"));
}

}  // namespace

absl::Status RankTrainer::FormAndRun(TrainObserver& observer, TrainResult& result) {
  result.operation = "opening the data";
  const RankPlan plan = BuildRankPlan(assignment_.spec(), assignment_.rank(), assignment_.world());
  const bool accelerated = options_.accelerator != nullptr;
  // Saving computes nothing.
  if (accelerated && !assignment_.save_and_stop()) {
    SHERD_RETURN_IF_ERROR(CheckHeads(plan.shape, *options_.accelerator));
  }
  SHERD_ASSIGN_OR_RETURN(const RankGroups groups, FindGroups(assignment_, plan));
  SHERD_RETURN_IF_ERROR(CheckShards(assignment_, plan));
  SHERD_RETURN_IF_ERROR(CheckStoredFor(assignment_));
  const v1::RankLedger predicted =
      PredictLedgerOn(assignment_, plan, options_.threads, options_.accelerator);
  SHERD_RETURN_IF_ERROR(CheckHostMemory(accelerated ? predicted.host_memory() : predicted.memory(),
                                        StoredForBytes(assignment_), assignment_.ranks_on_host()));
  if (accelerated) {
    const int64_t of_nccl = NcclBytes(plan, assignment_.spec(), MediaOf(assignment_));
    SHERD_RETURN_IF_ERROR(PlanDeviceMemory(predicted, *options_.accelerator, of_nccl));
  }
  SHERD_ASSIGN_OR_RETURN(JobDataset dataset, OpenData());
  JobData data(std::move(dataset));
  if (assignment_.rank() == 0) {
    for (const std::string& note : data.notes()) observer.OnLog(note);
  }

  result.operation = "forming the process groups";
  own_doing_ = false;
  SHERD_ASSIGN_OR_RETURN(RankMesh::Axes axes,
                         FormAxes(assignment_, plan, groups, listener_, formation_abort_,
                                  {options_.accelerator, options_.nccl}, result.lost_peer));
  const absl::Duration forming = timer_.elapsed();
  RankMesh mesh(std::move(axes));
  absl::Status status = RunFormed(plan, mesh, std::move(data), forming, observer, result);
  // Who only passes on what came from another must not be blamed.
  result.lost_peer = mesh.ended_by(status);
  if (const int failed = FailedRankOf(status); failed >= 0 && failed != assignment_.rank()) {
    result.lost_peer = failed;
  }
  if (result.lost_peer < 0) result.lost_holder = LostHolderOf(status);
  status = mesh.Explain(status);
  // Peers of a rank that fails must not wait for it.
  if (!status.ok()) mesh.Abort(status.message());
  // Arenas go with the mesh. What a job that ended early has enqueued for the device may still use
  // them, and communicators await their own streams alone.
  if (accelerated) options_.accelerator->Synchronize().IgnoreError();
  absl::MutexLock lock(&mutex_);
  mesh_ = nullptr;
  return status;
}

absl::StatusOr<JobDataset> RankTrainer::OpenData() const {
  const v1::JobSpec& spec = assignment_.spec();
  DatasetOptions options;
  options.data_root = options_.data_root;
  if (!HoldsTokens(spec.data())) {
    SHERD_ASSIGN_OR_RETURN(const std::string directory,
                           ResolveOutputDirectory(options_.output_root, spec.checkpoint().dir()));
    options.cache_directory = absl::StrCat(directory, "/", kTokensDirectory);
  }
  options.threads = options_.threads;
  options.stopped = [this] { return formation_abort_.aborted(); };
  return OpenJobDataset(spec, options);
}

absl::Status RankTrainer::RunFormed(const RankPlan& plan, RankMesh& mesh, JobData data,
                                    absl::Duration forming, TrainObserver& observer,
                                    TrainResult& result) {
  result.operation = "allocating memory";
  // What a trial stores, and counts, is nobody's.
  HoldingStore forgotten;
  HoldingStore& holdings = measures() ? forgotten : holdings_;
  prometheus::Registry uncounted;
  prometheus::Registry& metrics = measures() ? uncounted : metrics_;
  std::shared_ptr<HoldingSegment> segment;
  if (plan.keeps_versions) {
    const HoldingKey key{assignment_.job_id(), assignment_.epoch(), assignment_.world(),
                         assignment_.rank()};
    SHERD_ASSIGN_OR_RETURN(segment, holdings.Make(key, VersionBytes(plan), assignment_.secret()));
  }
  RankJob job(assignment_, plan, options_.threads, mesh, segment.get(), std::move(data),
              {*files_, options_.output_root, options_.data_root, options_.full_disk}, metrics,
              observer, options_.accelerator);
  if (!Publish(&mesh, &job)) return absl::AbortedError("aborted while forming");
  const absl::Status status =
      measures() ? Try(job, forming, observer, result)
                 : Train(job, Introduction(assignment_, plan, mesh, options_.threads),
                         segment.get(), forming, observer, result);
  absl::MutexLock lock(&mutex_);
  job_ = nullptr;
  return status;
}

absl::Status RankTrainer::Train(RankJob& job, absl::string_view introduction,
                                const HoldingSegment* segment, absl::Duration forming,
                                TrainObserver& observer, TrainResult& result) {
  absl::Status status = GetReady(job, segment, forming, observer, result);
  if (status.ok()) {
    observer.OnLog(introduction);
    own_doing_ = true;
    status = assignment_.save_and_stop() ? job.SaveAndStop() : job.Run();
    result.operation = assignment_.save_and_stop()
                           ? "saving a checkpoint"
                           : absl::StrCat("step ", job.step() + 1, ", ", job.operation());
  }
  result.paused = job.paused();
  if (status.ok() && !result.paused) {
    result.operation = "writing the weights";
    absl::StatusOr<std::string> path = job.WriteWeights(formation_abort_);
    status = path.status();
    if (path.ok()) {
      result.weights_path = *std::move(path);
      result.last_steps = job.LastSteps();
    }
  }
  result.step = job.committed();
  return status;
}

absl::Status RankTrainer::GetReady(RankJob& job, const HoldingSegment* segment,
                                   absl::Duration forming, TrainObserver& observer,
                                   TrainResult& result) {
  result.operation = "restoring";
  // What is wrong with files stays wrong; holders of a version come and go.
  own_doing_ = !RestoresVersion(assignment_);
  const CopyWatch watch = [this](int64_t bytes) {
    copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return formation_abort_.aborted() ? absl::AbortedError(formation_abort_.reason())
                                      : absl::OkStatus();
  };
  SHERD_RETURN_IF_ERROR(job.Restore({holdings_, {listener_.address(), listener_.network_address()}},
                                    formation_abort_, watch));
  own_doing_ = false;
  v1::RankReady ready;
  result.operation = "having its shard held";
  if (segment != nullptr) {
    SHERD_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<RemoteCopy>> copies,
                           HandOverShard(assignment_, *segment, formation_abort_, watch));
    SHERD_RETURN_IF_ERROR(job.CopyTo(std::move(copies)));
    ready.set_copies(assignment_.holders_size());
  }
  ready.set_step(job.step());
  ready.set_form_seconds(absl::ToDoubleSeconds(forming));
  ready.set_restore_seconds(absl::ToDoubleSeconds(timer_.elapsed() - forming));
  observer.OnReady(ready);
  return absl::OkStatus();
}

bool RankTrainer::Publish(RankMesh* mesh, RankJob* job) {
  absl::MutexLock lock(&mutex_);
  if (aborted_) return false;
  mesh_ = mesh;
  job_ = job;
  if (pause_) job->RequestPause();
  return true;
}

}  // namespace sherd
