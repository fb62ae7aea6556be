#pragma once

#include <vector>

#include "absl/types/span.h"
#include "plan/parameters.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

enum class Placement { kWhole, kShard };

// How many ranks make up one replica: they compute consecutive micro-batches together, round by
// round (schedule.h), and what a placement cuts up is cut over them. But for the optimizer state of
// kRank, which is cut over all ranks of the data-parallel group.
enum class ReplicaUnit {
  kRank,        // a rank accumulates its own micro-batches
  kGroup,       // all ranks
  kShardGroup,  // `parallel.shard_group` adjacent ranks
};

enum class GradientFlow { kAllReducePerStep, kReduceScatterPerStep, kReduceScatterPerMicroBatch };
enum class ParameterFlow {
  kStayWhole,          // every rank updates all of them
  kGatherAfterUpdate,  // every rank updates its shard, then all take all shards
  kGatherPerUse,       // a unit is gathered before it computes and freed after it
};

// What a strategy means. Code asks the row and never compares strategies.
struct StrategyRow {
  v1::Strategy strategy;
  // The setting of `parallel.zero1_gradients` that the row is for; kUnspecified: any.
  v1::GradientReduction variant;
  Placement params;
  Placement grads;
  Placement optimizer;
  ReplicaUnit replica;
  GradientFlow gradients;
  ParameterFlow parameters;
};

// The rows that this build executes.
absl::Span<const StrategyRow> StrategyTable();
// The row of a strategy, and of zero1's variant. nullptr when this build does not execute it.
const StrategyRow* FindStrategy(v1::Strategy strategy, v1::GradientReduction zero1_gradients);
// nullptr when this build does not execute what a normalised specification asks for.
const StrategyRow* FindStrategy(const v1::ParallelSpec& parallel);
// The strategies of the table, each once, in its order.
std::vector<v1::Strategy> SupportedStrategies();

// How a strategy lays a data-parallel group of `degree` ranks out: replicas of adjacent ranks.
int ReplicasOf(const StrategyRow& strategy, const v1::ParallelSpec& parallel, int degree);
// Ranks over which what is sharded is cut; adjacent.
int ShardDegreeOf(const StrategyRow& strategy, const v1::ParallelSpec& parallel, int degree);

// What rank `index` of a data-parallel group of `degree` ranks updates of every unit, as the
// coordinator sends it: its shard, or all of it where the optimizer state stays whole.
std::vector<v1::UnitShard> DescribeOwned(const Inventory& inventory, const StrategyRow& strategy,
                                         const v1::ParallelSpec& parallel, int degree, int index);

}  // namespace sherd
