#pragma once

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/comm/nccl/nccl_api.h"
#include "worker/train/rank_groups.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// What a rank forms groups with beside its host. All of it outlives them; null: there is none.
struct GroupDevice {
  Accelerator* accelerator = nullptr;
  NcclApi* nccl = nullptr;
};

// Forms the groups that the rank of `assignment` is in, with arenas as plan/ledger.h says; every
// rank of the world makes this call. Arenas are memory of the accelerator where there is one: data
// go through the hosts, or in groups over NCCL from device to device. Blocks.
// Errors of FormCommunicator and FormNcclCommunicator, kResourceExhausted of the accelerator, and
// kFailedPrecondition without what a group over NCCL needs; then `lost_peer` is the rank of the
// world that it failed for, if another's it is, and no member of a group that has been formed waits
// for this rank.
absl::StatusOr<RankMesh::Axes> FormAxes(const v1::Assignment& assignment, const RankPlan& plan,
                                        const RankGroups& groups, DataListener& listener,
                                        FormationAbort& abort, const GroupDevice& device,
                                        int& lost_peer);

}  // namespace sherd
