#include "plan/timeline.h"

#include <gtest/gtest.h>

#include "absl/strings/string_view.h"
#include "plan/cost_profiles.h"
#include "plan/model_flops.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using testing::kStrategies;
using testing::MakeJob;

// One byte a second and free messages: bytes are seconds.
constexpr CostModel kByteASecond = {.flops = 1, .bandwidth = 1};

PlannedOp Op(StepOp op, int unit, int64_t bytes = 0, int64_t messages = 0) {
  PlannedOp planned;
  planned.op = op;
  planned.unit = unit;
  if (bytes > 0 || messages > 0) {
    planned.wires = {{WireGroup::kData, WireOp::kAllGather, {bytes, messages}}};
  }
  return planned;
}

// Embedding, two blocks, head.
TimelineUnits FourUnits(double forward, double backward) {
  TimelineUnits timeline;
  timeline.units.assign(4,
                        {.forward = forward, .backward = backward, .accumulate = 1, .update = 2});
  return timeline;
}

// compute:  |wait 3|f0 2|wait 1 |f1 2|
// link:     |g0  3 |g1  3  |
TEST(Timeline, AForwardWaitsForItsOwnGatherAlone) {
  const StepPlan plan{{Op(StepOp::kGather, 0, 3), Op(StepOp::kGather, 1, 3),
                       Op(StepOp::kForward, 0), Op(StepOp::kForward, 1)}};
  const StepTimes times = WalkTimeline(plan, FourUnits(2, 4), kByteASecond);
  EXPECT_EQ(times.step, 8);
  EXPECT_EQ(times.compute, 4);
  EXPECT_EQ(times.communication, 6);
  EXPECT_EQ(times.exposed, 4);
}

// With shared cores nothing hides: the same plan takes the sum.
TEST(Timeline, NothingHidesOnSharedCores) {
  const StepPlan plan{{Op(StepOp::kGather, 0, 3), Op(StepOp::kForward, 0),
                       Op(StepOp::kGather, 1, 3), Op(StepOp::kForward, 0),
                       Op(StepOp::kForward, 1)}};
  CostModel cost = kByteASecond;
  // compute: |wait 3|f0 2|f0 2|wait 1|f1 2|: g1 hides behind the second f0.
  EXPECT_EQ(WalkTimeline(plan, FourUnits(2, 4), cost).step, 10);
  cost.shares_cores = true;
  const StepTimes times = WalkTimeline(plan, FourUnits(2, 4), cost);
  EXPECT_EQ(times.step, 12);
  EXPECT_EQ(times.exposed, times.communication);
}

// A message costs its latency, whatever its size.
TEST(Timeline, CountsMessages) {
  CostModel cost = kByteASecond;
  cost.seconds_per_message = 0.5;
  const StepPlan plan{{Op(StepOp::kGather, 0, 3, 4), Op(StepOp::kForward, 0)}};
  EXPECT_EQ(WalkTimeline(plan, FourUnits(2, 4), cost).step, 3 + 4 * 0.5 + 2);
}

// A bucket's reduction sums all of its units, on the lane of communication.
TEST(Timeline, AReductionTakesTheSumsOfItsUnitsToo) {
  TimelineUnits timeline = FourUnits(2, 4);
  for (UnitSeconds& unit : timeline.units) unit.reduce = 0.25;
  PlannedOp bucket = Op(StepOp::kAllReduce, 1, 3);
  bucket.units = 3;
  const StepPlan plan{{bucket, Op(StepOp::kExchange, -1)}};
  EXPECT_EQ(WalkTimeline(plan, timeline, kByteASecond).step, 3 + 3 * 0.25);
}

// Two slots, three backwards: the third writes where the first is still being reduced.
// compute: |b1 4|b2 4|wait 6|b1 4|
// link:         |r1  10      |r2  10      |
TEST(Timeline, ABackwardWaitsForTheReductionThatReadsItsGradientBuffer) {
  TimelineUnits timeline = FourUnits(2, 4);
  timeline.block_gradient_slots = 2;
  StepPlan plan{{Op(StepOp::kBackward, 1), Op(StepOp::kReduceScatter, 1, 10),
                 Op(StepOp::kBackward, 2), Op(StepOp::kReduceScatter, 2, 10),
                 Op(StepOp::kBackward, 1)}};
  EXPECT_EQ(WalkTimeline(plan, timeline, kByteASecond).step, 4 + 4 + 6 + 4);
  timeline.block_gradient_slots = 3;
  EXPECT_EQ(WalkTimeline(plan, timeline, kByteASecond).step, 4 + 4 + 4);
  // The exchange waits for all reductions, and is waited for.
  plan.ops.push_back(Op(StepOp::kExchange, -1, 1));
  const StepTimes times = WalkTimeline(plan, timeline, kByteASecond);
  EXPECT_EQ(times.step, 4 + 10 + 10 + 1);
  EXPECT_EQ(times.exposed, 12 + 1);
}

// The head of a tied model writes into the embedding's buffer, which the last round still reduces.
TEST(Timeline, ATiedHeadWaitsForTheEmbeddingsBuffer) {
  TimelineUnits timeline = FourUnits(2, 4);
  timeline.block_gradient_slots = 1;
  const StepPlan plan{{Op(StepOp::kBackward, 0), Op(StepOp::kReduceScatter, 0, 10),
                       Op(StepOp::kBackward, 3), Op(StepOp::kBackward, 0)}};
  EXPECT_EQ(WalkTimeline(plan, timeline, kByteASecond).step, 4 + 4 + 6 + 4);
  timeline.tied = true;
  EXPECT_EQ(WalkTimeline(plan, timeline, kByteASecond).step, 4 + 10 + 4 + 4);
}

// Gathers after the update run beside the next updates; the step ends with the last of them.
// compute: |wait 5|u0 2|u1 2|wait 8   |
// link:    |x  5  |    |g0 5  |g1  5  |
TEST(Timeline, TheStepEndsWhenTheGathersAfterTheUpdateHaveEnded) {
  const StepPlan plan{{Op(StepOp::kExchange, -1, 5), Op(StepOp::kUpdate, 0),
                       Op(StepOp::kGather, 0, 5), Op(StepOp::kUpdate, 1),
                       Op(StepOp::kGather, 1, 5)}};
  const StepTimes times = WalkTimeline(plan, FourUnits(2, 4), kByteASecond);
  EXPECT_EQ(times.step, 5 + 2 + 10);
  EXPECT_EQ(times.exposed, 5 + 8);
}

// F56
TEST(ModelFlops, AreSixAParameterAndTokenAndCausalAttention) {
  const v1::JobSpec spec = MakeJob("ddp", v1::DATA_TYPE_BF16, 1);
  const RankPlan plan = BuildRankPlan(spec, 0, 1);
  const ModelShape& shape = plan.shape;
  const int64_t seq_len = spec.train().seq_len();
  const double block = ForwardFlops(shape, plan.inventory, plan.inventory.units[1], seq_len, 1);
  EXPECT_EQ(block, 2.0 * static_cast<double>(plan.inventory.units[1].elements) +
                       2.0 * static_cast<double>(seq_len * shape.hidden));
  EXPECT_EQ(ForwardFlops(shape, plan.inventory, plan.inventory.units[0], seq_len, 1), 0);
  const int64_t multiplied = plan.inventory.elements - shape.context * shape.hidden;
  EXPECT_EQ(TrainingFlops(shape, plan.inventory, seq_len, 10),
            60.0 * static_cast<double>(multiplied + shape.layers * seq_len * shape.hidden));
}

// Whatever the plan: no less than either lane, no more than both, and the same compute on whichever
// lanes.
TEST(Timeline, LiesBetweenItsLanesAndTheirSum) {
  for (const absl::string_view profile : CostProfileNames()) {
    CostModel cost = *FindCostProfile(profile);
    for (const absl::string_view strategy : kStrategies) {
      for (const int64_t rounds : {1, 3}) {
        const v1::JobSpec spec = MakeJob(strategy, v1::DATA_TYPE_BF16, 4 * rounds, {.layers = 5});
        const RankPlan plan = BuildRankPlan(spec, 0, 4);
        cost.shares_cores = true;
        const StepTimes sum = EstimateStep(plan, spec, cost);
        cost.shares_cores = false;
        const StepTimes lanes = EstimateStep(plan, spec, cost);
        EXPECT_NEAR(lanes.step, lanes.compute + lanes.exposed, 1e-9);
        EXPECT_GE(lanes.step, lanes.communication);
        EXPECT_LE(lanes.step, sum.step * (1 + 1e-9));
        EXPECT_NEAR(sum.step, lanes.compute + lanes.communication, 1e-9);
        EXPECT_GT(sum.step, 0);
      }
    }
  }
}

}  // namespace
}  // namespace sherd
