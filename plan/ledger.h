#pragma once

#include <cstdint>

#include "plan/activations.h"
#include "plan/parameters.h"
#include "plan/scratch.h"
#include "plan/shard_layout.h"
#include "plan/step_plan.h"
#include "plan/strategy.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Everything about one rank's training that follows from the specification, its rank and the world.
struct RankPlan {
  ModelShape shape;
  Inventory inventory;
  ShardLayout layout;
  StrategyRow strategy;
  MicroBatches micro_batches;
  StepPlan step;
  // One rank's record in the exchange of a step, in bytes.
  int64_t exchange_bytes = 0;
  int64_t param_bytes = 2;
  int64_t grad_bytes = 2;

  // Gradients of a micro-batch lie in buffers that units share until they are scattered.
  bool ScattersEachMicroBatch() const {
    return strategy.gradients == GradientFlow::kReduceScatterPerMicroBatch;
  }
  bool AddsReplicas() const { return AddsUpReplicas(strategy, micro_batches); }
  // Of a rank of the data-parallel group: its place among those that share its shards.
  int ShardIndex(int rank) const { return rank % layout.degree; }
};

// Of rank `rank` of a data-parallel group of `degree`. `spec` is normalised and valid; the strategy
// is one that this build executes, and `degree` a multiple of its shard group.
RankPlan BuildRankPlan(const v1::JobSpec& spec, int rank, int degree);

// As BuildRankPlan's step, for `micro_batches` evaluation micro-batches in all.
StepPlan BuildEvalPlanFor(const RankPlan& plan, const v1::JobSpec& spec, int rank,
                          int64_t micro_batches);

// Bytes of an exchange record: fixed part and what each round adds.
inline constexpr int64_t kExchangeFixedBytes = 112;
inline constexpr int64_t kExchangeBytesPerRound = 16;

// What the job's model keeps of a forward pass.
KeptActivations KeptBy(const v1::ParallelSpec& parallel);

// What a member of a shared-memory group holds beside its arena.
inline constexpr int64_t kCommControlBytes = 135168;
// Bytes of a rank's arena: what those that share its shards read in place; and, where shards are
// summed over replicas, what the holders of copies do.
int64_t ArenaBytes(const RankPlan& plan);
int64_t ReplicaArenaBytes(const RankPlan& plan);

// Whole-unit gradient buffers that blocks take in turn, so that one can be reduced while the next
// is written.
inline constexpr int64_t kBlockGradientSlots = 2;
// How many of them the rank has: no more than there are blocks.
int64_t GradientSlots(const RankPlan& plan);
// Buffers of a binary counter that sums `leaves` leaves, `per_fold` at a time: the most digits that
// are 1 in any count at which it can stand between two calls.
int64_t TreeBuffers(int64_t leaves, int64_t per_fold);

// What the rank's kernels work in.
ScratchSizes ScratchOf(const RankPlan& plan, const v1::JobSpec& spec);

// What the rank will hold with `threads` compute threads, by pool, and what it will send in a step,
// by collective; the `measured` halves stay zero. Model state: section 3 of the strategy table,
// plus padding.
v1::RankLedger PredictLedger(const RankPlan& plan, const v1::JobSpec& spec, int rank,
                             int threads = 1);

}  // namespace sherd
