#include "worker/train/trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "plan/ledger.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/save.h"
#include "worker/comm/formation.h"
#include "worker/comm/staged_communicator.h"
#include "worker/data/inspect.h"
#include "worker/data/job_tokens.h"
#include "worker/data/roots.h"
#include "worker/dataset/inspect_texts.h"
#include "worker/dataset/job_dataset.h"
#include "worker/holdings/holding_links.h"
#include "worker/holdings/lost_holder.h"
#include "worker/holdings/remote_copy.h"
#include "worker/train/device_memory.h"
#include "worker/train/host_memory.h"
#include "worker/train/introduction.h"
#include "worker/train/probe.h"
#include "worker/train/rank_groups.h"
#include "worker/train/rank_job.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/restore.h"
#include "worker/train/trial_observer.h"
#include "worker/train/vote.h"

namespace sherd {
namespace {

// Ranks wait in collectives for each other's computation, the longest stretch of which is a head's
// backward or all rounds of a rank that has more of them. Deaths and freezes are known much sooner:
// by the data link and by the lease.
constexpr absl::Duration kOperationTimeout = absl::Minutes(10);
// And for one that copies or restores no faster than this.
constexpr int64_t kSlowestCopyBytesPerSecond = int64_t{1} << 20;

absl::Duration OperationTimeout(const RankPlan& plan, const v1::JobSpec& spec) {
  const int64_t copies = std::max<int64_t>(1, spec.elastic().replicas());
  return kOperationTimeout +
         absl::Seconds(copies * (VersionBytes(plan) / kSlowestCopyBytesPerSecond));
}

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

class Stopwatch {
 public:
  absl::Duration elapsed() const {
    return absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class RankTrainer final : public Trainer {
 public:
  RankTrainer(const v1::Assignment& assignment, const TrainerOptions& options,
              DataListener& listener, HoldingStore& holdings, prometheus::Registry& metrics)
      : assignment_(assignment),
        options_(options),
        listener_(listener),
        holdings_(holdings),
        metrics_(metrics),
        real_files_(MakePosixFileSystem()),
        files_(options.files == nullptr ? real_files_.get() : options.files) {}

  TrainResult Run(TrainObserver& observer) override {
    TrainResult result;
    result.status = RunJob(observer, result);
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

  void Abort(absl::string_view reason) override {
    formation_abort_.Abort(reason);
    absl::MutexLock lock(&mutex_);
    aborted_ = true;
    // The reason first: a job that has stopped tells its peers why, and that must not be all.
    if (mesh_ != nullptr) mesh_->Abort(reason);
    if (probe_ != nullptr) probe_->Abort(reason);
    if (job_ != nullptr) job_->Stop();
  }

  void Pause() override {
    absl::MutexLock lock(&mutex_);
    pause_ = true;
    if (job_ != nullptr) job_->RequestPause();
  }

  TrainPosition Position() override {
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

 private:
  absl::Status RunJob(TrainObserver& observer, TrainResult& result) {
    if (!measures()) return TrainJob(observer, result);
    TrialObserver silent(observer);
    return assignment_.trial().steps() > 0 ? TrainJob(silent, result) : Probe(silent, result);
  }

  bool measures() const { return assignment_.has_trial(); }

  absl::Status Probe(TrainObserver& observer, TrainResult& result) {
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

  absl::Status TrainJob(TrainObserver& observer, TrainResult& result) {
    result.operation = "opening the data";
    const RankPlan plan =
        BuildRankPlan(assignment_.spec(), assignment_.rank(), assignment_.world());
    SHERD_ASSIGN_OR_RETURN(const RankGroups groups, FindGroups(assignment_, plan));
    SHERD_RETURN_IF_ERROR(CheckShards(assignment_, plan));
    SHERD_RETURN_IF_ERROR(CheckStoredFor(assignment_));
    const v1::RankLedger predicted = PredictLedger(assignment_, plan, options_.threads);
    SHERD_RETURN_IF_ERROR(
        options_.accelerator == nullptr
            ? CheckHostMemory(predicted, StoredForBytes(assignment_), assignment_.ranks_on_host())
            : PlanDeviceMemory(predicted, *options_.accelerator));
    SHERD_ASSIGN_OR_RETURN(JobDataset dataset, OpenData());
    JobData data(std::move(dataset));
    if (assignment_.rank() == 0) {
      for (const std::string& note : data.notes()) observer.OnLog(note);
    }

    result.operation = "forming the process groups";
    own_doing_ = false;
    SHERD_ASSIGN_OR_RETURN(RankMesh::Axes axes, FormAxes(groups, plan, result.lost_peer));
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
    absl::MutexLock lock(&mutex_);
    mesh_ = nullptr;
    return status;
  }

  absl::StatusOr<JobDataset> OpenData() const {
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

  // Every rank of the world forms its groups in this order. `lost_peer`: the rank of the world that
  // it failed for, if another's it is.
  absl::StatusOr<RankMesh::Axes> FormAxes(const RankGroups& groups, const RankPlan& plan,
                                          int& lost_peer) {
    RankMesh::Axes axes;
    absl::Status formed;
    const auto form = [&](const RankGroup& group, int64_t arena_bytes, RankMesh::Axis& axis) {
      if (!formed.ok()) return;
      absl::StatusOr<RankMesh::Axis> made =
          FormAxis(group, arena_bytes, OperationTimeout(plan, assignment_.spec()));
      formed = made.status();
      if (made.ok()) axis = *std::move(made);
      const int member = LostMemberOf(formed);
      // What members say of each other comes over the network.
      if (member >= 0 && member < static_cast<int>(group.ranks.size())) {
        lost_peer = group.ranks[static_cast<size_t>(member)];
      }
    };
    form(groups.sharers, ArenaBytes(plan), axes.sharers);
    form(groups.replicas, ReplicaArenaBytes(plan), axes.replicas);
    form(groups.tensor, TensorArenaBytes(plan, assignment_.spec()), axes.tensor);
    form(groups.kv_copies, ShareBytes(plan, plan.part().kv_copies), axes.kv_copies);
    if (formed.ok()) return axes;
    // Who waits in a group that has been formed must not take this for a departure in order.
    for (RankMesh::Axis* axis : {&axes.sharers, &axes.replicas, &axes.tensor}) {
      if (axis->comm != nullptr) axis->comm->Abort(formed.message());
    }
    return formed;
  }

  // Without a communicator for an empty group.
  absl::StatusOr<RankMesh::Axis> FormAxis(const RankGroup& group, int64_t arena_bytes,
                                          absl::Duration operation_timeout) {
    RankMesh::Axis axis;
    if (group.ranks.empty()) return axis;
    absl::StatusOr<std::unique_ptr<Communicator>> formed =
        Form(group, arena_bytes, operation_timeout);
    if (!formed.ok()) return WithRanks(formed.status(), group.ranks);
    if (options_.accelerator != nullptr) {
      formed = StagedCommunicator::Make(*std::move(formed), *options_.accelerator);
      SHERD_RETURN_IF_ERROR(formed.status());
    }
    axis.comm = *std::move(formed);
    axis.ranks = group.ranks;
    return axis;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Form(const RankGroup& group, int64_t arena_bytes,
                                                     absl::Duration operation_timeout) {
    GroupSpec spec;
    spec.job_id = assignment_.job_id();
    spec.epoch = assignment_.epoch();
    spec.group = absl::StrCat("the ", KindName(group.kind), " group of rank ", group.ranks.front());
    spec.secret = assignment_.secret();
    spec.rank = group.index;
    SHERD_ASSIGN_OR_RETURN(spec.addresses, AddressesOf(assignment_, group));
    FormOptions options;
    options.transport = group.transport;
    options.arena_bytes = arena_bytes;
    options.operation_timeout = operation_timeout;
    return FormCommunicator(listener_, spec, options, &formation_abort_);
  }

  absl::Status RunFormed(const RankPlan& plan, RankMesh& mesh, JobData data, absl::Duration forming,
                         TrainObserver& observer, TrainResult& result) {
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
    if (measures()) return Try(job, forming, observer, result);
    absl::Status status = GetReady(job, segment.get(), forming, observer, result);
    if (status.ok()) {
      observer.OnLog(Introduction(assignment_, plan, mesh, options_.threads));
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
    absl::MutexLock lock(&mutex_);
    job_ = nullptr;
    return status;
  }

  // Of the result only figures: no step of it is the job's.
  absl::Status Try(RankJob& job, absl::Duration forming, TrainObserver& observer,
                   TrainResult& result) {
    v1::RankReady formed;
    formed.set_form_seconds(absl::ToDoubleSeconds(forming));
    observer.OnReady(formed);
    own_doing_ = true;
    absl::StatusOr<v1::TrialReport> report = job.RunTrial();
    result.operation = absl::StrCat("step ", job.step() + 1, " of a trial, ", job.operation());
    if (report.ok()) result.trial = *std::move(report);
    absl::MutexLock lock(&mutex_);
    job_ = nullptr;
    return report.status();
  }

  // Restores, and has others hold what this rank will store.
  absl::Status GetReady(RankJob& job, const HoldingSegment* segment, absl::Duration forming,
                        TrainObserver& observer, TrainResult& result) {
    result.operation = "restoring";
    // What is wrong with files stays wrong; holders of a version come and go.
    own_doing_ = !RestoresVersion(assignment_);
    SHERD_RETURN_IF_ERROR(
        job.Restore({holdings_, {listener_.address(), listener_.network_address()}},
                    formation_abort_, [this](int64_t bytes) { return Copied(bytes); }));
    own_doing_ = false;
    v1::RankReady ready;
    result.operation = "having its shard held";
    if (segment != nullptr) {
      SHERD_RETURN_IF_ERROR(HaveHeld(job, *segment));
      ready.set_copies(assignment_.holders_size());
    }
    ready.set_step(job.step());
    ready.set_form_seconds(absl::ToDoubleSeconds(forming));
    ready.set_restore_seconds(absl::ToDoubleSeconds(timer_.elapsed() - forming));
    observer.OnReady(ready);
    return absl::OkStatus();
  }

  // Holders within the domain map the segment; those on other hosts store copies of their own.
  absl::Status HaveHeld(RankJob& job, const HoldingSegment& segment) {
    std::vector<std::unique_ptr<RemoteCopy>> copies;
    for (const std::string& holder : assignment_.holders()) {
      if (!SharesMemory(holder)) {
        SHERD_ASSIGN_OR_RETURN(
            std::unique_ptr<RemoteCopy> copy,
            RemoteCopy::Open(holder, segment, assignment_.secret(), formation_abort_,
                             [this](int64_t bytes) { return Copied(bytes); }));
        copies.push_back(std::move(copy));
        continue;
      }
      const absl::Status held = HandOver(holder, segment, assignment_.secret(), &formation_abort_);
      if (absl::IsAborted(held)) return held;
      if (!held.ok()) {
        return WithLostHolder(
            absl::UnavailableError(absl::StrCat(
                "the process at ", holder, " does not hold this rank's shard: ", held.message())),
            holder);
      }
    }
    return job.CopyTo(std::move(copies));
  }

  // As CopyWatch.
  absl::Status Copied(int64_t bytes) {
    copied_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return formation_abort_.aborted() ? absl::AbortedError(formation_abort_.reason())
                                      : absl::OkStatus();
  }

  // What Abort reaches from now on; false, and nothing, when Abort came before.
  bool Publish(RankMesh* mesh, RankJob* job) {
    absl::MutexLock lock(&mutex_);
    if (aborted_) return false;
    mesh_ = mesh;
    job_ = job;
    if (pause_) job->RequestPause();
    return true;
  }

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

}  // namespace

std::unique_ptr<Trainer> Trainer::Make(const v1::Assignment& assignment,
                                       const TrainerOptions& options, DataListener& listener,
                                       HoldingStore& holdings, prometheus::Registry& metrics) {
  return std::make_unique<RankTrainer>(assignment, options, listener, holdings, metrics);
}

namespace {

// That there is something to go on from, as far as can be seen without reading all of it.
absl::Status CheckResume(FileSystem& files, const std::string& root, const std::string& resume,
                         const TrainerOptions& options) {
  std::string from = resume;
  if (!resume.empty() && resume != "none" && resume != "latest") {
    SHERD_ASSIGN_OR_RETURN(from, ResolveOutputDirectory(options.output_root, resume));
  }
  return ResolveResume(files, root, from).status();
}

}  // namespace

absl::Status InspectJobFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                             int64_t seq_len, int64_t vocab, const TrainerOptions& options) {
  SHERD_RETURN_IF_ERROR(
      InspectFiles(data, checkpoint, seq_len, vocab, options.data_root, options.output_root));
  SHERD_RETURN_IF_ERROR(InspectTexts(data, seq_len, vocab, options.data_root));
  if (checkpoint.dir().empty()) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(const std::string directory,
                         ResolveOutputDirectory(options.output_root, checkpoint.dir()));
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const absl::Status usable = CheckRoot(*files, directory);
  if (!usable.ok()) {
    return absl::Status(usable.code(), absl::StrCat("checkpoint.dir: ", usable.message()));
  }
  const absl::Status resumable = CheckResume(*files, directory, checkpoint.resume(), options);
  return absl::Status(resumable.code(), absl::StrCat("checkpoint.resume: ", resumable.message()));
}

}  // namespace sherd
