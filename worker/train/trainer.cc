#include "worker/train/trainer.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/counted.h"
#include "common/status_macros.h"
#include "google/protobuf/util/message_differencer.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "plan/peer_addresses.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/inspect.h"
#include "worker/data/roots.h"
#include "worker/train/host_memory.h"
#include "worker/train/rank_job.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/write_weights.h"

namespace sherd {
namespace {

// Ranks wait in collectives for each other's computation, the longest stretch of which is a head's
// backward or all rounds of a rank that has more of them. Deaths and freezes are known much sooner:
// by the data link and by the lease.
constexpr absl::Duration kOperationTimeout = absl::Minutes(10);

// A group that the rank is in, and its own place there.
struct RankGroup {
  v1::GroupKind kind = v1::GROUP_KIND_UNSPECIFIED;
  Transport transport = Transport::kShm;
  std::vector<int> ranks;
  int index = -1;
};

absl::string_view KindName(v1::GroupKind kind) {
  switch (kind) {
    case v1::GROUP_KIND_TENSOR:
      return "tensor-parallel";
    case v1::GROUP_KIND_SHARD:
      return "shard";
    case v1::GROUP_KIND_REPLICA:
      return "replica";
    case v1::GROUP_KIND_KV_COPY:
      return "key and value";
    default:
      return "data-parallel";
  }
}

// kNotFound when the assignment names no such group.
absl::StatusOr<RankGroup> FindGroup(const v1::Assignment& assignment, v1::GroupKind kind) {
  for (const v1::ProcessGroup& group : assignment.groups()) {
    if (group.kind() != kind) continue;
    RankGroup found;
    found.kind = kind;
    found.transport = group.shares_memory() ? Transport::kShm : Transport::kTcp;
    for (const int rank : group.ranks()) {
      if (rank == assignment.rank()) found.index = static_cast<int>(found.ranks.size());
      if (rank < 0 || rank >= assignment.world()) {
        return absl::InvalidArgumentError(absl::StrCat("the assignment names rank ", rank,
                                                       " of a world of ", assignment.world()));
      }
      found.ranks.push_back(rank);
    }
    if (found.index >= 0) return found;
  }
  return absl::NotFoundError(
      absl::StrCat("the assignment names no ", v1::GroupKind_Name(kind), " that this rank is in"));
}

// The groups that the rank is in.
struct RankGroups {
  RankGroup data;
  // How the data-parallel group is cut up: itself unless into shard groups.
  RankGroup sharers;
  // Empty when there is nobody else.
  RankGroup replicas;
  RankGroup tensor;
  RankGroup kv_copies;
};

absl::Status FindShardGroups(const v1::Assignment& assignment, RankGroups& groups) {
  groups.sharers = groups.data;
  const int64_t shard_group = assignment.spec().parallel().shard_group();
  if (shard_group == 0) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(groups.sharers, FindGroup(assignment, v1::GROUP_KIND_SHARD));
  SHERD_ASSIGN_OR_RETURN(RankGroup replicas, FindGroup(assignment, v1::GROUP_KIND_REPLICA));
  const int64_t sharers = static_cast<int64_t>(groups.sharers.ranks.size());
  const int64_t copies = static_cast<int64_t>(replicas.ranks.size());
  const bool fits = sharers == shard_group &&
                    sharers * copies == static_cast<int64_t>(groups.data.ranks.size()) &&
                    groups.data.index == replicas.index * sharers + groups.sharers.index;
  if (!fits) {
    return absl::InvalidArgumentError(
        "the assignment's shard and replica groups do not make up its data-parallel group");
  }
  if (copies > 1) groups.replicas = std::move(replicas);
  return absl::OkStatus();
}

absl::StatusOr<RankGroups> FindGroups(const v1::Assignment& assignment) {
  RankGroups groups;
  SHERD_ASSIGN_OR_RETURN(groups.data, FindGroup(assignment, v1::GROUP_KIND_DATA));
  SHERD_RETURN_IF_ERROR(FindShardGroups(assignment, groups));
  const int64_t tensor = assignment.spec().parallel().tensor();
  const int64_t world = static_cast<int64_t>(groups.data.ranks.size()) * tensor;
  SHERD_ASSIGN_OR_RETURN(RankGroup members, FindGroup(assignment, v1::GROUP_KIND_TENSOR));
  const bool fits = static_cast<int64_t>(members.ranks.size()) == tensor &&
                    world == assignment.world() &&
                    assignment.rank() == groups.data.index * tensor + members.index;
  if (!fits) {
    return absl::InvalidArgumentError(
        "the assignment's tensor-parallel and data-parallel groups do not make up its world");
  }
  if (tensor > 1) groups.tensor = std::move(members);
  return groups;
}

// The coordinator's layout must be the one that this worker would compute: workers of another build
// could cut units differently, and then gathers would mix them up.
absl::Status CheckShards(const v1::Assignment& assignment, const RankPlan& plan) {
  const std::vector<v1::UnitShard> expected =
      DescribeOwned(plan.inventory, plan.strategy, assignment.spec().parallel(),
                    plan.micro_batches.degree, plan.data_rank);
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

// Where a group's members listen for it, in group order.
absl::StatusOr<std::vector<std::string>> AddressesOf(const v1::Assignment& assignment,
                                                     const RankGroup& group) {
  const bool tcp = group.transport == Transport::kTcp;
  SHERD_ASSIGN_OR_RETURN(const PeerAddresses peers,
                         ReadPeers(tcp ? assignment.network_peers() : assignment.peers()));
  std::vector<std::string> addresses;
  for (const int rank : group.ranks) {
    const auto found = peers.find(rank);
    if (found == peers.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the assignment names no address of rank ", rank));
    }
    addresses.push_back(found->second);
  }
  return addresses;
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
    if (mesh_ != nullptr) mesh_->Abort(reason);
  }

 private:
  absl::Status RunJob(TrainObserver& observer, TrainResult& result) {
    result.operation = "opening the data";
    SHERD_ASSIGN_OR_RETURN(RankGroups groups, FindGroups(assignment_));
    const RankPlan plan =
        BuildRankPlan(assignment_.spec(), assignment_.rank(), assignment_.world());
    SHERD_RETURN_IF_ERROR(CheckShards(assignment_, plan));
    SHERD_RETURN_IF_ERROR(CheckHostMemory(
        PredictLedger(plan, assignment_.spec(), options_.threads, MediaOf(assignment_)),
        assignment_.ranks_on_host()));
    SHERD_ASSIGN_OR_RETURN(JobData data, JobData::Open(assignment_.spec(), options_.data_root));
    if (SumsOverKvCopies(plan)) {
      SHERD_ASSIGN_OR_RETURN(groups.kv_copies, FindGroup(assignment_, v1::GROUP_KIND_KV_COPY));
      if (static_cast<int>(groups.kv_copies.ranks.size()) != plan.part().kv_copies) {
        return absl::InvalidArgumentError(
            "the assignment's group of copies of keys and values is not of the size that the model "
            "asks for");
      }
    }

    result.operation = "forming the process groups";
    SHERD_ASSIGN_OR_RETURN(RankMesh::Axes axes, FormAxes(groups, plan));
    RankMesh mesh(std::move(axes));
    absl::Status status = RunFormed(plan, mesh, std::move(data), observer, result);
    // Who only passes on what came from another must not be blamed.
    result.lost_peer = mesh.ended_by(status);
    if (const int failed = FailedRankOf(status); failed >= 0 && failed != assignment_.rank()) {
      result.lost_peer = failed;
    }
    status = mesh.Explain(status);
    // Peers of a rank that fails must not wait for it.
    if (!status.ok()) mesh.Abort(status.message());
    absl::MutexLock lock(&mutex_);
    mesh_ = nullptr;
    return status;
  }

  // Every rank of the world forms its groups in this order.
  absl::StatusOr<RankMesh::Axes> FormAxes(const RankGroups& groups, const RankPlan& plan) {
    RankMesh::Axes axes;
    absl::Status formed;
    const auto form = [&](const RankGroup& group, int64_t arena_bytes, RankMesh::Axis& axis) {
      if (!formed.ok()) return;
      absl::StatusOr<RankMesh::Axis> made = FormAxis(group, arena_bytes);
      if (made.ok()) axis = *std::move(made);
      formed = made.status();
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
  absl::StatusOr<RankMesh::Axis> FormAxis(const RankGroup& group, int64_t arena_bytes) {
    RankMesh::Axis axis;
    if (group.ranks.empty()) return axis;
    absl::StatusOr<std::unique_ptr<Communicator>> formed = Form(group, arena_bytes);
    if (!formed.ok()) return WithRanks(formed.status(), group.ranks);
    axis.comm = *std::move(formed);
    axis.ranks = group.ranks;
    return axis;
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Form(const RankGroup& group, int64_t arena_bytes) {
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
    options.operation_timeout = kOperationTimeout;
    return FormCommunicator(listener_, spec, options, &formation_abort_);
  }

  absl::Status RunFormed(const RankPlan& plan, RankMesh& mesh, JobData data,
                         TrainObserver& observer, TrainResult& result) {
    result.operation = "allocating memory";
    RankJob job(assignment_, plan, options_.threads, mesh, std::move(data), metrics_);
    if (!Publish(&mesh, &job)) return absl::AbortedError("aborted while forming");
    observer.OnLog(Introduction(plan, mesh));
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

  std::string Introduction(const RankPlan& plan, const RankMesh& mesh) const {
    const v1::JobSpec& spec = assignment_.spec();
    return absl::StrCat(
        Counted(plan.inventory.elements, "parameter"), ", ",
        std::string(NameOf(spec.parallel().strategy())), " over ",
        Counted(mesh.data_size(), "rank"),
        plan.AddsReplicas() ? absl::StrCat(" in shard groups of ", mesh.sharers().size()) : "",
        mesh.tensor() == nullptr ? "" : absl::StrCat(" × tensor ", mesh.tensor()->size()),
        plan.part().place.sequence ? " with sequence parallelism" : "", ", ",
        std::string(NameOf(spec.precision().compute())), "; ",
        Counted(plan.micro_batches.count, "micro-batch", "micro-batches"), " a step in ",
        Counted(plan.micro_batches.rounds, "round"), "; ", Counted(mesh.arena_bytes(), "byte"),
        MediaOf(assignment_).sharers == Medium::kTcp ? " in arenas, shards over TCP, "
                                                     : " of shared memory, ",
        Counted(options_.threads, "thread"),
        plan.micro_batches.SumsInTreeOrder()
            ? ""
            : "; gradients are summed in another order than on one worker, so "
              "figures differ from its by rounding (zero2 and zero3 never do)");
  }

  // What Abort reaches from now on; false, and nothing, when Abort came before.
  bool Publish(RankMesh* mesh, RankJob* job) {
    absl::MutexLock lock(&mutex_);
    if (aborted_) return false;
    mesh_ = mesh;
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
  RankMesh* mesh_ ABSL_GUARDED_BY(mutex_) = nullptr;
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
