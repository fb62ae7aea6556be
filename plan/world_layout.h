#pragma once

#include <vector>

#include "plan/groups.h"
#include "plan/parameters.h"
#include "plan/strategy.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// Ranks of a world that hold one copy of a tensor-parallel group's work: its degree.
int TensorDegreeOf(const v1::ParallelSpec& parallel);
// The ranks of every world that the specification allows are a multiple of so many.
int64_t WorldGranuleOf(const v1::ParallelSpec& parallel);

// The groups and shards of every rank of one world, as the coordinator sends them. What ranks have
// in common is computed once: an inventory for each place in a tensor-parallel group.
class WorldLayout {
 public:
  // `spec` is normalised and valid, and `world` a positive multiple of its WorldGranuleOf.
  WorldLayout(const v1::JobSpec& spec, int world);

  int world() const { return world_; }
  std::vector<v1::ProcessGroup> GroupsOf(int rank) const { return sherd::GroupsOf(groups_, rank); }
  // Its shard of every unit, in unit order: of what its place in the tensor-parallel group holds,
  // cut over its data-parallel group where the strategy shards the optimizer's state. Nothing when
  // this build does not execute the strategy.
  std::vector<v1::UnitShard> ShardsOf(int rank) const;

 private:
  const int world_;
  const v1::ParallelSpec parallel_;
  const StrategyRow* const strategy_;
  Groups groups_;
  // By place in the tensor-parallel group.
  std::vector<Inventory> inventories_;
};

}  // namespace sherd
