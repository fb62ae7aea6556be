#include "worker/train/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/counted.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/inspect.h"
#include "worker/data/roots.h"
#include "worker/train/host_memory.h"
#include "worker/train/rank_job.h"

namespace sherd {
namespace {

// Ranks wait in collectives for each other's computation, the longest stretch of which is a head's
// backward or all rounds of a rank that has more of them. Deaths and freezes are known much sooner:
// by the data link and by the lease.
constexpr absl::Duration kOperationTimeout = absl::Minutes(10);

// The rank's data-parallel group, and its own place in it.
struct DataGroup {
  std::vector<int> ranks;
  int index = -1;
};

absl::StatusOr<DataGroup> FindDataGroup(const v1::Assignment& assignment) {
  for (const v1::ProcessGroup& group : assignment.groups()) {
    if (group.kind() != v1::GROUP_KIND_DATA) continue;
    DataGroup found;
    for (const int rank : group.ranks()) {
      if (rank == assignment.rank()) found.index = static_cast<int>(found.ranks.size());
      if (rank < 0 || rank >= assignment.peers_size()) {
        return absl::InvalidArgumentError(absl::StrCat("the assignment's data group names rank ",
                                                       rank, " of a world of ",
                                                       assignment.peers_size()));
      }
      found.ranks.push_back(rank);
    }
    if (found.index >= 0) return found;
  }
  return absl::InvalidArgumentError("the assignment names no data group that this rank is in");
}

// The coordinator's layout must be the one that this worker would compute: workers of another build
// could cut units differently, and then gathers would mix them up.
absl::Status CheckShards(const v1::Assignment& assignment, const RankPlan& plan, int index) {
  const std::vector<v1::UnitShard> expected =
      DescribeOwned(plan.inventory, plan.strategy, plan.layout.degree, index);
  bool equal = static_cast<int>(expected.size()) == assignment.shards_size();
  for (int unit = 0; equal && unit < assignment.shards_size(); ++unit) {
    equal = google::protobuf::util::MessageDifferencer::Equals(expected[static_cast<size_t>(unit)],
                                                               assignment.shards(unit));
  }
  if (equal) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the coordinator's shard layout is not the one that this worker computes; run coordinator "
      "and "
      "workers of the same version");
}

int RanksOnThisHost(const v1::Assignment& assignment) {
  const std::string& host = assignment.peers(assignment.rank()).host();
  return static_cast<int>(std::count_if(assignment.peers().begin(), assignment.peers().end(),
                                        [&](const v1::Peer& peer) { return peer.host() == host; }));
}

class RankTrainer final : public Trainer {
 public:
  RankTrainer(const v1::Assignment& assignment, const TrainerOptions& options,
              DataListener& listener, prometheus::Registry& metrics)
      : assignment_(assignment), options_(options), listener_(listener), metrics_(metrics) {}

  TrainResult Run(TrainObserver& observer) override {
    TrainResult result;
    result.status = RunJob(observer, result);
    if (result.status.ok()) {
      observer.OnLog(absl::StrCat("finished after step ", result.step));
      return result;
    }
    {
      absl::MutexLock lock(&mutex_);
      // A cause of the rank's own is the better reason.
      if (aborted_ && absl::IsAborted(result.status)) {
        result.status = absl::AbortedError(formation_abort_.reason());
        result.lost_peer = -1;
      }
    }
    observer.OnLog(absl::StrCat("ended after step ", result.step, " at ", result.operation, ": ",
                                std::string(result.status.message())));
    return result;
  }

  void Abort(absl::string_view reason) override {
    formation_abort_.Abort(reason);
    absl::MutexLock lock(&mutex_);
    aborted_ = true;
    if (job_ != nullptr) job_->Stop();
    if (comm_ != nullptr) comm_->Abort(reason);
  }

 private:
  absl::Status RunJob(TrainObserver& observer, TrainResult& result) {
    result.operation = "opening the data";
    SHERD_ASSIGN_OR_RETURN(const DataGroup group, FindDataGroup(assignment_));
    const RankPlan plan =
        BuildRankPlan(assignment_.spec(), group.index, static_cast<int>(group.ranks.size()));
    SHERD_RETURN_IF_ERROR(CheckShards(assignment_, plan, group.index));
    SHERD_RETURN_IF_ERROR(
        CheckHostMemory(PredictLedger(plan, assignment_.spec(), group.index, options_.threads),
                        RanksOnThisHost(assignment_)));
    SHERD_ASSIGN_OR_RETURN(JobData data, JobData::Open(assignment_.spec(), options_.data_root));

    result.operation = "forming the data-parallel group";
    SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, Form(group, plan));
    absl::Status status = RunFormed(group, plan, *comm, std::move(data), observer, result);
    const int lost = comm->lost_peer();
    if (!status.ok() && lost >= 0) result.lost_peer = group.ranks[static_cast<size_t>(lost)];
    // Peers of a rank that fails must not wait for it.
    if (!status.ok()) comm->Abort(status.message());
    absl::MutexLock lock(&mutex_);
    comm_ = nullptr;
    return status;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Form(const DataGroup& group, const RankPlan& plan) {
    GroupSpec spec;
    spec.job_id = assignment_.job_id();
    spec.epoch = assignment_.epoch();
    spec.group = absl::StrCat("data:", group.ranks.front());
    spec.secret = assignment_.secret();
    spec.rank = group.index;
    for (const int rank : group.ranks) {
      spec.addresses.push_back(assignment_.peers(rank).data_address());
    }
    ShmOptions options;
    options.arena_bytes = ArenaBytes(plan);
    options.operation_timeout = kOperationTimeout;
    return FormShmCommunicator(listener_, spec, options, &formation_abort_);
  }

  absl::Status RunFormed(const DataGroup& group, const RankPlan& plan, Communicator& comm,
                         JobData data, TrainObserver& observer, TrainResult& result) {
    result.operation = "allocating memory";
    RankJob job(assignment_, plan, group.index, options_.threads, comm, std::move(data), metrics_);
    if (!Publish(&comm, &job)) return absl::AbortedError("aborted while forming");
    observer.OnLog(Introduction(group, plan, comm));
    observer.OnReady();
    absl::Status status = job.Run(observer);
    result.step = job.step();
    result.operation = absl::StrCat("step ", job.step() + 1, ", ", job.operation());
    if (status.ok()) {
      result.operation = "writing the weights";
      absl::StatusOr<std::string> path = job.WriteWeights(options_.output_root);
      status = path.status();
      if (path.ok()) result.weights_path = *std::move(path);
    }
    absl::MutexLock lock(&mutex_);
    job_ = nullptr;
    return status;
  }

  std::string Introduction(const DataGroup& group, const RankPlan& plan, Communicator& comm) const {
    const v1::JobSpec& spec = assignment_.spec();
    return absl::StrCat(Counted(plan.inventory.elements, "parameter"), ", ",
                        std::string(NameOf(spec.parallel().strategy())), " over ",
                        Counted(static_cast<int64_t>(group.ranks.size()), "rank"), ", ",
                        std::string(NameOf(spec.precision().compute())), "; ",
                        Counted(plan.micro_batches.count, "micro-batch", "micro-batches"),
                        " a step in ", Counted(plan.micro_batches.rounds, "round"), "; ",
                        Counted(comm.arena_bytes(), "byte"), " of shared memory, ",
                        Counted(options_.threads, "thread"));
  }

  // What Abort reaches from now on; false, and nothing, when Abort came before.
  bool Publish(Communicator* comm, RankJob* job) {
    absl::MutexLock lock(&mutex_);
    if (aborted_) return false;
    comm_ = comm;
    job_ = job;
    return true;
  }

  const v1::Assignment assignment_;
  const TrainerOptions options_;
  DataListener& listener_;
  prometheus::Registry& metrics_;
  FormationAbort formation_abort_;

  absl::Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  Communicator* comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  RankJob* job_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace

std::unique_ptr<Trainer> Trainer::Make(const v1::Assignment& assignment,
                                       const TrainerOptions& options, DataListener& listener,
                                       prometheus::Registry& metrics) {
  return std::make_unique<RankTrainer>(assignment, options, listener, metrics);
}

absl::Status InspectJobFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                             int64_t seq_len, int64_t vocab, const TrainerOptions& options) {
  SHERD_RETURN_IF_ERROR(
      InspectFiles(data, checkpoint, seq_len, vocab, options.data_root, options.output_root));
  if (checkpoint.dir().empty()) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(const std::string directory,
                         ResolveOutputDirectory(options.output_root, checkpoint.dir()));
  const absl::Status replaceable = CheckReplaceable(*MakePosixFileSystem(), directory);
  return absl::Status(replaceable.code(), absl::StrCat("checkpoint.dir: ", replaceable.message()));
}

}  // namespace sherd
