#include "worker/train/mesh_formation.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "plan/host_staging.h"
#include "plan/job_spec.h"
#include "worker/comm/formation.h"
#include "worker/comm/nccl/nccl_communicator.h"
#include "worker/comm/staged_communicator.h"

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

class AxisFormation {
 public:
  // `nccl` is null where no group is over NCCL.
  AxisFormation(const v1::Assignment& assignment, absl::Duration operation_timeout,
                DataListener& listener, FormationAbort& abort, Accelerator* accelerator,
                NcclEpoch* nccl)
      : assignment_(assignment),
        operation_timeout_(operation_timeout),
        listener_(listener),
        abort_(abort),
        accelerator_(accelerator),
        nccl_(nccl) {}

  // Without a communicator for an empty group. `gathered_bytes`: StagedCommunicator::Options.
  absl::StatusOr<RankMesh::Axis> Form(const RankGroup& group, int64_t arena_bytes,
                                      int64_t gathered_bytes) {
    RankMesh::Axis axis;
    if (group.ranks.empty()) return axis;
    absl::StatusOr<std::unique_ptr<Communicator>> formed = FormGroup(group, arena_bytes);
    if (!formed.ok()) return WithRanks(formed.status(), group.ranks);
    axis.on_device = group.over_nccl;
    if (accelerator_ != nullptr && !axis.on_device) {
      formed = StagedCommunicator::Make(
          *std::move(formed), *accelerator_,
          {.operation_timeout = operation_timeout_, .gathered_bytes = gathered_bytes});
      SHERD_RETURN_IF_ERROR(formed.status());
    }
    axis.comm = *std::move(formed);
    axis.ranks = group.ranks;
    return axis;
  }

 private:
  absl::StatusOr<std::unique_ptr<Communicator>> FormGroup(const RankGroup& group,
                                                          int64_t arena_bytes) {
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
    options.operation_timeout = operation_timeout_;
    if (!group.over_nccl) return FormCommunicator(listener_, spec, options, &abort_);
    static_assert(NcclOptions().piece_bytes == kNcclStagingBytes);
    return FormNcclCommunicator(*nccl_, listener_, spec, options,
                                {.reproducible = IsReproducible(assignment_.spec().precision())},
                                &abort_);
  }

  const v1::Assignment& assignment_;
  const absl::Duration operation_timeout_;
  DataListener& listener_;
  FormationAbort& abort_;
  Accelerator* const accelerator_;
  NcclEpoch* const nccl_;
};

absl::StatusOr<std::unique_ptr<NcclEpoch>> MakeNcclEpoch(const GroupDevice& device) {
  StreamDevice* const streams =
      device.accelerator == nullptr ? nullptr : device.accelerator->streams();
  if (streams == nullptr || device.nccl == nullptr) {
    return absl::FailedPreconditionError(
        "the assignment has a group over NCCL, and this worker has no GPU or no NCCL");
  }
  return std::make_unique<NcclEpoch>(*device.nccl, *streams, NcclEpoch::Options());
}

}  // namespace

absl::StatusOr<RankMesh::Axes> FormAxes(const v1::Assignment& assignment, const RankPlan& plan,
                                        const RankGroups& groups, DataListener& listener,
                                        FormationAbort& abort, const GroupDevice& device,
                                        int& lost_peer) {
  RankMesh::Axes axes;
  const bool over_nccl = groups.sharers.over_nccl || groups.replicas.over_nccl ||
                         groups.tensor.over_nccl || groups.kv_copies.over_nccl;
  if (over_nccl) {
    SHERD_ASSIGN_OR_RETURN(axes.nccl, MakeNcclEpoch(device));
  }
  AxisFormation formation(assignment, OperationTimeout(plan, assignment.spec()), listener, abort,
                          device.accelerator, axes.nccl.get());
  absl::Status formed;
  const auto form = [&](const RankGroup& group, int64_t arena_bytes, int64_t gathered_bytes,
                        RankMesh::Axis& axis) {
    if (!formed.ok()) return;
    absl::StatusOr<RankMesh::Axis> made = formation.Form(group, arena_bytes, gathered_bytes);
    formed = made.status();
    if (made.ok()) axis = *std::move(made);
    const int member = LostMemberOf(formed);
    // What members say of each other comes over the network.
    if (member >= 0 && member < static_cast<int>(group.ranks.size())) {
      lost_peer = group.ranks[static_cast<size_t>(member)];
    }
  };
  form(groups.sharers, ArenaBytes(plan), GatheredBytes(plan), axes.sharers);
  form(groups.replicas, ReplicaArenaBytes(plan), 0, axes.replicas);
  form(groups.tensor, TensorArenaBytes(plan, assignment.spec()),
       TensorGatheredBytes(plan, assignment.spec()), axes.tensor);
  form(groups.kv_copies, ShareBytes(plan, plan.part().kv_copies), 0, axes.kv_copies);
  if (formed.ok()) return axes;
  // Groups over NCCL end together: that of a member that is gone may have been formed before.
  for (const RankMesh::Axis* axis : {&axes.sharers, &axes.replicas, &axes.tensor}) {
    if (lost_peer >= 0 || axis->comm == nullptr) continue;
    const absl::Status ended = axis->comm->status();
    const int member = axis->comm->ended_by();
    if (ended.ok() || member < 0 || !absl::StrContains(formed.message(), ended.message())) continue;
    lost_peer = axis->ranks[static_cast<size_t>(member)];
  }
  // Who waits in a group that has been formed must not take this for a departure in order.
  for (RankMesh::Axis* axis : {&axes.sharers, &axes.replicas, &axes.tensor}) {
    if (axis->comm != nullptr) axis->comm->Abort(formed.message());
  }
  return formed;
}

}  // namespace sherd
