#pragma once

#include <vector>

#include "sherd/v1/layout.pb.h"

namespace sherd {

// A world of tensor × data ranks: tensor-parallel groups are adjacent ranks, data-parallel groups
// hold equal tensor positions. With a shard group of K > 0, K adjacent members of a data-parallel
// group share its shards, and members with equal places in theirs hold copies of the same ones.
struct Groups {
  std::vector<std::vector<int>> tensor;
  std::vector<std::vector<int>> data;
  std::vector<std::vector<int>> shard;
  std::vector<std::vector<int>> replica;
};

// `world` must be a positive multiple of `tensor_degree` >= 1, and of that times `shard_group`
// unless it is 0: none.
Groups BuildGroups(int world, int tensor_degree, int shard_group = 0);

// The groups that contain `rank`, in the order above, as the coordinator sends them.
std::vector<v1::ProcessGroup> GroupsOf(const Groups& groups, int rank);

// What a rank's groups move their data through.
struct GroupTransports {
  v1::Transport sharers = v1::TRANSPORT_SHM;  // the shard group, or else the data-parallel group
  v1::Transport replicas = v1::TRANSPORT_SHM;
  v1::Transport tensor = v1::TRANSPORT_SHM;
  v1::Transport kv_copies = v1::TRANSPORT_SHM;
};

// Of the groups that an assignment names.
GroupTransports TransportsOf(const v1::Assignment& assignment);

}  // namespace sherd
