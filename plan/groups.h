#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// "tensor", "data", "shard", "replica", "kv_copy".
absl::string_view NameOf(v1::GroupKind kind);

// A world of tensor × data ranks: tensor-parallel groups are adjacent ranks, data-parallel groups
// hold equal tensor positions. With a shard group of K > 0, K adjacent members of a data-parallel
// group share its shards, and members with equal places in theirs hold copies of the same ones.
// With more than one copy of a head of keys and values, so many adjacent members of a
// tensor-parallel group hold the same one.
struct Groups {
  int tensor_degree = 1;
  int shard_group = 0;
  int kv_copies = 1;
  std::vector<std::vector<int>> tensor;
  std::vector<std::vector<int>> data;
  // None without shard groups.
  std::vector<std::vector<int>> shard;
  std::vector<std::vector<int>> replica;
  // None of one member.
  std::vector<std::vector<int>> kv_copy;
};

// `world` must be a positive multiple of `tensor_degree` >= 1, and of that times `shard_group`
// unless it is 0: none. `kv_copies` divides the tensor degree (ModelPart).
Groups BuildGroups(int world, int tensor_degree, int shard_group = 0, int kv_copies = 1);

// The groups that contain `rank`, in the order above, as the coordinator sends them.
std::vector<v1::ProcessGroup> GroupsOf(const Groups& groups, int rank);

// What a rank's groups move their data through: shared memory, TCP, or NCCL from device to device.
enum class Medium { kSharedMemory, kTcp, kNccl };
struct GroupMedia {
  Medium sharers = Medium::kSharedMemory;  // the shard group, or else the data-parallel group
  Medium replicas = Medium::kSharedMemory;
  Medium tensor = Medium::kSharedMemory;
  Medium kv_copies = Medium::kSharedMemory;
};

// Of the groups that an assignment names.
GroupMedia MediaOf(const v1::Assignment& assignment);

}  // namespace sherd
