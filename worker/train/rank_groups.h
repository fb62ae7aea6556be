#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"

namespace sherd {

// A group that a rank is in, and its own place there.
struct RankGroup {
  v1::GroupKind kind = v1::GROUP_KIND_UNSPECIFIED;
  // Over NCCL that of the links.
  Transport transport = Transport::kShm;
  bool over_nccl = false;
  std::vector<int> ranks;
  int index = -1;
};

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

// Of the assignment of a rank with `plan`. kNotFound for a group that it does not name,
// kInvalidArgument when groups do not make up its world.
absl::StatusOr<RankGroups> FindGroups(const v1::Assignment& assignment, const RankPlan& plan);

// "tensor-parallel", as in "the tensor-parallel group".
absl::string_view KindName(v1::GroupKind kind);

// The coordinator's layout must be the one that this worker would compute: workers of another build
// could cut units differently, and then gathers would mix them up. kFailedPrecondition.
absl::Status CheckShards(const v1::Assignment& assignment, const RankPlan& plan);

// That those whose shards this rank's process stores are other ranks of the world.
// kInvalidArgument.
absl::Status CheckStoredFor(const v1::Assignment& assignment);

// Where a group's members listen for it, in group order. kInvalidArgument when one is missing.
absl::StatusOr<std::vector<std::string>> AddressesOf(const v1::Assignment& assignment,
                                                     const RankGroup& group);

}  // namespace sherd
