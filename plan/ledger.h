#pragma once

#include <cstdint>
#include <vector>

#include "plan/activations.h"
#include "plan/gradient_room.h"
#include "plan/groups.h"
#include "plan/parameters.h"
#include "plan/scratch.h"
#include "plan/shard_layout.h"
#include "plan/step_plan.h"
#include "plan/strategy.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// Everything about one rank's training that follows from the specification, its rank and the world.
struct RankPlan {
  // In the world; and in its data-parallel group, whose size is micro_batches.degree. Its place in
  // its tensor-parallel group is the inventory's.
  int rank = 0;
  int data_rank = 0;
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
  // Every step leaves a version of the rank's shard that outlives it (elastic.replicas).
  bool keeps_versions = false;
  // Training state is saved now and then (checkpoint.every).
  bool saves = false;
  // The home of the optimizer's state is the host, also of a device with memory of its own.
  bool offloads = false;

  // Gradients of a micro-batch lie in buffers that units share until they are scattered.
  bool ScattersEachMicroBatch() const {
    return strategy.gradients == GradientFlow::kReduceScatterPerMicroBatch;
  }
  bool AddsReplicas() const { return AddsUpReplicas(strategy, micro_batches); }
  // The rank's place among those that share its shards.
  int ShardIndex() const { return data_rank % layout.degree; }
  // What it updates of a unit.
  ElementRange Owned(int unit) const {
    return OwnedOf(layout.units[static_cast<size_t>(unit)], layout.degree, strategy, data_rank);
  }
  // Of that what it answers for where several ranks hold it, and saves; and of this, what it counts
  // in norms.
  std::vector<ElementRange> Counted(int unit) const;
  std::vector<ElementRange> Normed(int unit) const;
  const ModelPart& part() const { return inventory.part; }
};

// Of a world of tensor × data ranks, tensor-parallel groups being adjacent ranks. `spec` is
// normalised and valid; the strategy is one that this build executes, `world` a multiple of the
// tensor-parallel degree, and that multiple one of the shard group.
RankPlan BuildRankPlan(const v1::JobSpec& spec, int rank, int world);

// As BuildRankPlan's step, for `micro_batches` evaluation micro-batches in all.
StepPlan BuildEvalPlanFor(const RankPlan& plan, const v1::JobSpec& spec, int64_t micro_batches);

// Bytes of an exchange record: fixed part and what each round adds.
inline constexpr int64_t kExchangeFixedBytes = 112;
inline constexpr int64_t kExchangeBytesPerRound = 16;

// The room for activations that the rank's gradients leave until they are written: whole ones in
// their unit's backward, of a tied embedding in the head's, whatever the round; sums of scattered
// ones behind it, but only with one round have none been kept before.
GradientRoom RoomIn(const RankPlan& plan);

// What the job's model keeps of a forward pass.
KeptActivations KeptBy(const v1::ParallelSpec& parallel);

// What a member of a shared-memory group holds beside its arena; and, in a group over TCP or NCCL,
// for each of the others: room for a piece of its part of a reduction, over NCCL of its device.
inline constexpr int64_t kShmControlBytes = 135168;
inline constexpr int64_t kTcpStagingBytes = 256 << 10;
inline constexpr int64_t kNcclStagingBytes = 4 << 20;
int64_t CommBytes(Medium medium, int64_t members);
// Bytes of a rank's arena: what those that share its shards read in place; and, where shards are
// summed over replicas, what the holders of copies do.
int64_t ArenaBytes(const RankPlan& plan);
int64_t ReplicaArenaBytes(const RankPlan& plan);
// Where shares of a unit's gradients are summed over `members` members of the tensor-parallel
// group: room for the most that any rank owns of a unit, the same on all, in whole cache lines.
int64_t ShareBytes(const RankPlan& plan, int members);
// Of a rank's arena among its tensor-parallel group: what activations lie in it, then ShareBytes.
int64_t TensorArenaBytes(const RankPlan& plan, const v1::JobSpec& spec);
// Whether shares are also summed among fewer members than the tensor-parallel group has.
bool SumsOverKvCopies(const RankPlan& plan);

// One version of the rank's shard: master copies and moments of all that it owns, padding included;
// and the memory that two of them are kept in, in whole pages behind a head.
inline constexpr int64_t kVersionElementBytes = 12;
inline constexpr int64_t kHoldingHeadBytes = 77824;
int64_t VersionBytes(const RankPlan& plan);
int64_t HoldingBytes(const RankPlan& plan);

// The copy of what the rank answers for of master copies and moments, padding left out, that is
// saved beside training.
int64_t SnapshotBytes(const RankPlan& plan);

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
// plus padding. `stored_for_bytes`: of shards of ranks on other hosts that the rank's process
// stores.
v1::RankLedger PredictLedger(const RankPlan& plan, const v1::JobSpec& spec, int threads = 1,
                             const GroupMedia& media = {}, int64_t stored_for_bytes = 0);
// Of what the assignment's process stores for ranks on other hosts.
int64_t StoredForBytes(const v1::Assignment& assignment);
// Of the rank of this assignment.
v1::RankLedger PredictLedger(const v1::Assignment& assignment, const RankPlan& plan, int threads);

}  // namespace sherd
