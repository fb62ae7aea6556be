#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/parameters.h"
#include "plan/schedule.h"
#include "plan/shard_layout.h"
#include "plan/strategy.h"
#include "plan/wire.h"

namespace sherd {

enum class StepOp {
  kGather,          // start all-gathering a unit's parameters
  kForward,         // a unit's forward; waits for the gather of what it reads
  kBackward,        // a unit's backward into its gradient buffer
  kReduceScatter,   // start folding a unit's gradients of this round into the owners' accumulators;
                    // once a step (round −1): start summing a bucket's shards on their owners
  kAccumulate,      // fold the unit's gradients of this round into the rank's own accumulator
  kFree,            // drop a unit's gathered parameters
  kAllReduce,       // start summing a bucket's accumulated gradients over the ranks
  kReduceReplicas,  // start summing a unit's shard over the replicas that hold copies of it
  kReduceTensor,    // sum gradients of which every member of the tensor-parallel group has a share
  kReduceCopies,    // sum those of heads of keys and values over the members that hold the same
  kExchange,  // losses, squared norms and flags of every rank; the clipping coefficient follows
  kUpdate,    // AdamW on what the rank owns of a unit
};

struct PlannedOp {
  StepOp op;
  int unit = -1;       // -1: no unit
  int units = 1;       // a bucket's operation is about units [unit, unit + units)
  int64_t round = -1;  // -1: once a step
  // Sent by the plan's rank; by a forward or backward in the tensor-parallel group, while it
  // computes.
  std::vector<PlannedWire> wires;

  Wire wire() const;
};

struct StepPlanOptions {
  MicroBatches micro_batches;
  // The rank of the data-parallel group whose bytes the operations carry; its place in its
  // tensor-parallel group is the inventory's. Kinds and order are the same for every rank, so
  // collectives always match.
  int rank = 0;
  bool reshard_after_forward = true;
  // Gathers started ahead of the computation that needs them.
  int64_t prefetch = 1;
  // Units whose gradients are reduced once a step are reduced together until they have so many
  // bytes; 0: each by itself.
  int64_t bucket_bytes = 0;
  int64_t param_bytes = 2;
  int64_t grad_bytes = 2;
  // Size of one rank's record in the exchange.
  int64_t exchange_bytes = 0;
  // What a unit's forward and backward send in the tensor-parallel group, by unit. Empty: nothing.
  std::vector<std::vector<PlannedWire>> forward_wires;
  std::vector<std::vector<PlannedWire>> backward_wires;
};

// A longer record is exchanged in pieces of this size.
inline constexpr int64_t kExchangePieceBytes = 64 << 10;

// Whether shards that were summed inside replicas are then summed over them.
inline bool AddsUpReplicas(const StrategyRow& strategy, const MicroBatches& split) {
  return strategy.replica == ReplicaUnit::kShardGroup && split.replicas > 1;
}

// The ordered operations of one step.
struct StepPlan {
  std::vector<PlannedOp> ops;
};

// What rank `rank` of a data-parallel group updates of a unit.
ElementRange OwnedOf(const UnitLayout& unit, int degree, const StrategyRow& strategy, int rank);

StepPlan BuildStepPlan(const Inventory& inventory, const ShardLayout& layout,
                       const StrategyRow& strategy, const StepPlanOptions& options);

// Forward passes alone, with an exchange of losses after every round.
StepPlan BuildEvalPlan(const Inventory& inventory, const ShardLayout& layout,
                       const StrategyRow& strategy, const StepPlanOptions& options);

// The largest number of blocks whose parameters are gathered at one time; 0 without gathers.
int MaxGatheredBlocks(const StepPlan& plan, const Inventory& inventory);

// "reduce-scatter h.3 round 0".
std::string Describe(const PlannedOp& op, const Inventory& inventory);
// One readable line an operation, for golden files and `--explain`.
std::string Describe(const StepPlan& plan, const Inventory& inventory);

}  // namespace sherd
