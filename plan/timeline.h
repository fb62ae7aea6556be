#pragma once

#include <cstdint>
#include <vector>

#include "plan/ledger.h"
#include "plan/step_plan.h"

namespace sherd {

// What a rank's device and links do. Estimates: plan/cost_profiles.h.
struct CostModel {
  // Floating-point operations a second of one rank.
  double flops = 0;
  // Bytes a second that one rank sends while all do; and within a tensor-parallel group, which lies
  // on one host.
  double bandwidth = 0;
  double tensor_bandwidth = 0;
  double seconds_per_message = 0;
  // AdamW on one parameter.
  double optimizer_seconds = 0;
  // Adding one gradient to an accumulator or to another rank's.
  double fold_seconds = 0;
  // The rank's compute pays for its communication, as on processor cores that do both: nothing
  // hides.
  bool shares_cores = false;
};

// Seconds.
struct StepTimes {
  double step = 0;
  double compute = 0;
  double communication = 0;
  // Of the communication, what the step waits for.
  double exposed = 0;
};

// Seconds that a unit's operations take on one rank.
struct UnitSeconds {
  double forward = 0;
  double backward = 0;
  double accumulate = 0;
  // Of a reduction, beside its bytes: summing what the ranks contribute to the rank's shard.
  double reduce = 0;
  double update = 0;
  // Its gradients are reduced, and leave their buffer to others then; else at once.
  bool reduced = true;
};

struct TimelineUnits {
  std::vector<UnitSeconds> units;
  // The head's backward writes gradients of unit 0 too.
  bool tied = false;
  // Gradient buffers that the blocks take in turn; 0: every unit's gradients have their own place.
  int64_t block_gradient_slots = 0;
};

// Walks the plan on two lanes. Compute runs its operations one after another; communication runs
// what was started, in order, each for messages · seconds_per_message + bytes / bandwidth, and a
// reduction for its sums too. Compute waits where worker/train/step_executor.cc does: a forward or
// backward for its unit's gather, a backward also for the reduction that still reads its gradient
// buffer, and each for what it sends in the tensor-parallel group (as if nothing of that were
// hidden), a sum over replicas for the unit's own reduction, the exchange for all reductions and
// for itself, the end for all gathers. Ranks are taken to be equally fast.
StepTimes WalkTimeline(const StepPlan& plan, const TimelineUnits& timeline, const CostModel& cost);

// Of a step that follows another and is followed by one: what the one before has gathered after its
// update it waits for in its own forwards.
StepTimes WalkRepeatedly(const StepPlan& plan, const TimelineUnits& timeline,
                         const CostModel& cost);

// The step of the plan's rank, which has a micro-batch in every round (rank 0 does).
StepTimes EstimateStep(const RankPlan& plan, const v1::JobSpec& spec, const CostModel& cost);

}  // namespace sherd
