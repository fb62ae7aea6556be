#include "plan/step_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using testing::MakeJob;

std::string Golden(const std::string& name) {
  std::ifstream file(absl::StrCat(SHERD_GOLDEN_DIR, "/", name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct GoldenCase {
  const char* file;
  const char* strategy;  // with its variant: "zero1 all_reduce"
  int64_t micro_batches;
  int64_t prefetch = 1;
  int64_t bucket_mb = 0;
};

class GoldenStepPlan : public ::testing::TestWithParam<GoldenCase> {};

// The files are the reviewed record of what each strategy does, operation by operation.
TEST_P(GoldenStepPlan, MatchesItsFile) {
  v1::JobSpec spec = MakeJob(GetParam().strategy, v1::DATA_TYPE_BF16, GetParam().micro_batches);
  spec.mutable_parallel()->set_prefetch(GetParam().prefetch);
  spec.mutable_parallel()->set_bucket_mb(GetParam().bucket_mb);
  const RankPlan plan = BuildRankPlan(spec, /*rank=*/1, /*degree=*/4);
  EXPECT_EQ(Describe(plan.step, plan.inventory), Golden(GetParam().file));
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenStepPlan,
    ::testing::Values(
        GoldenCase{"ddp_one_round.txt", "ddp", 4}, GoldenCase{"ddp_two_rounds.txt", "ddp", 8},
        GoldenCase{
            .file = "ddp_one_bucket.txt", .strategy = "ddp", .micro_batches = 4, .bucket_mb = 25},
        GoldenCase{"zero1_one_round.txt", "zero1", 4},
        GoldenCase{"zero1_two_rounds.txt", "zero1", 8},
        GoldenCase{"zero1_all_reduce_one_round.txt", "zero1 all_reduce", 4},
        GoldenCase{"zero1_all_reduce_two_rounds.txt", "zero1 all_reduce", 8},
        GoldenCase{"zero2_one_round.txt", "zero2", 4},
        GoldenCase{"zero2_two_rounds.txt", "zero2", 8},
        GoldenCase{"zero3_one_round.txt", "zero3", 4},
        GoldenCase{"zero3_two_rounds.txt", "zero3", 8, 0},
        GoldenCase{"zero3_two_ahead.txt", "zero3", 4, 2},
        GoldenCase{"zero3_kept.txt", "zero3 kept", 4},
        GoldenCase{"zero3_kept_two_rounds.txt", "zero3 kept", 8},
        GoldenCase{"hybrid_two_by_two.txt", "hybrid 2", 8}));

struct TensorGoldenCase {
  const char* file;
  bool sequence;
};

class GoldenTensorStepPlan : public ::testing::TestWithParam<TensorGoldenCase> {};

// Rank 1 of two tensor-parallel groups of two: its forwards and backwards send in [0, 1], its
// gathers and reductions in [1, 3].
TEST_P(GoldenTensorStepPlan, MatchesItsFile) {
  v1::JobSpec spec = MakeJob("zero3", v1::DATA_TYPE_BF16, 2);
  spec.mutable_parallel()->set_tensor(2);
  spec.mutable_parallel()->set_sequence_parallel(GetParam().sequence);
  const RankPlan plan = BuildRankPlan(spec, /*rank=*/1, /*world=*/4);
  EXPECT_EQ(Describe(plan.step, plan.inventory), Golden(GetParam().file));
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTensorStepPlan,
                         ::testing::Values(TensorGoldenCase{"tensor_two_zero3.txt", false},
                                           TensorGoldenCase{"tensor_two_sequence_zero3.txt",
                                                            true}));

// Every forward and every backward finds its parameters gathered, nothing is gathered twice, and
// all is freed at the end.
void ExpectGatheredWhereRead(const StepPlan& step, const Inventory& inventory) {
  std::map<int, bool> gathered;
  const int head = static_cast<int>(inventory.units.size()) - 1;
  for (const PlannedOp& op : step.ops) {
    if (op.op == StepOp::kGather) {
      EXPECT_FALSE(gathered[op.unit]);
      gathered[op.unit] = true;
    }
    if (op.op == StepOp::kFree) {
      EXPECT_TRUE(gathered[op.unit]);
      gathered[op.unit] = false;
    }
    const bool reads = op.op == StepOp::kForward || (op.op == StepOp::kBackward && op.unit != 0);
    if (!reads) continue;
    EXPECT_TRUE(gathered[op.unit]) << op.unit;
    EXPECT_TRUE(op.unit != head || !inventory.tied || gathered[0]);
  }
  for (const auto& [unit, held] : gathered) EXPECT_FALSE(held) << unit;
}

// F5: for any prefetch, and in evaluations too.
TEST(StepPlan, GathersBeforeUseAndFreesAfterIt) {
  for (const int64_t prefetch : {0, 1, 2, 5, 100}) {
    for (const bool reshard : {true, false}) {
      for (const bool tied : {true, false}) {
        v1::JobSpec spec = MakeJob("zero3", v1::DATA_TYPE_FP32, 7);
        spec.mutable_model()->set_tie_embeddings(tied);
        spec.mutable_parallel()->set_prefetch(prefetch);
        spec.mutable_parallel()->set_reshard_after_forward(reshard);
        const RankPlan plan = BuildRankPlan(spec, 0, 3);
        ExpectGatheredWhereRead(plan.step, plan.inventory);
        ExpectGatheredWhereRead(BuildEvalPlanFor(plan, spec, 4), plan.inventory);
      }
    }
  }
}

}  // namespace
}  // namespace sherd
