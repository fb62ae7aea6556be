#pragma once

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/train/rank_groups.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// Forms the groups that the rank of `assignment` is in, with arenas as plan/ledger.h says; every
// rank of the world makes this call. Arenas are memory of `device`, unless that is null. Blocks.
// Errors of FormCommunicator, and kResourceExhausted of `device`; then `lost_peer` is the
// rank of the world that it failed for, if another's it is, and no member of a group that has been
// formed waits for this rank.
absl::StatusOr<RankMesh::Axes> FormAxes(const v1::Assignment& assignment, const RankPlan& plan,
                                        const RankGroups& groups, DataListener& listener,
                                        FormationAbort& abort, Device* device, int& lost_peer);

}  // namespace sherd
