#include "plan/step_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"

namespace sherd {
namespace {

// A job of `micro_batches` micro-batches a step.
v1::JobSpec Job(v1::Strategy strategy, int64_t micro_batches, v1::DataType type) {
  v1::JobSpec spec;
  spec.set_name("test");
  v1::ModelSpec& model = *spec.mutable_model();
  model.set_arch(v1::ARCHITECTURE_GPT2);
  model.set_layers(3);
  model.set_hidden(64);
  model.set_heads(2);
  model.set_vocab(256);
  model.set_context(32);
  spec.mutable_data()->add_train("text");
  spec.mutable_train()->set_steps(10);
  spec.mutable_train()->set_micro_batch(2);
  spec.mutable_train()->set_global_batch(2 * micro_batches);
  spec.mutable_train()->mutable_optimizer()->set_lr(1e-3);
  spec.mutable_parallel()->set_strategy(strategy);
  spec.mutable_precision()->set_compute(type);
  return NormalizeJobSpec(spec);
}

std::string Golden(const std::string& name) {
  std::ifstream file(absl::StrCat(SHERD_GOLDEN_DIR, "/", name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct GoldenCase {
  const char* file;
  v1::Strategy strategy;
  int64_t micro_batches;
  bool reshard;
  int64_t prefetch;
};

class GoldenStepPlan : public ::testing::TestWithParam<GoldenCase> {};

// The files are the reviewed record of what each strategy does, operation by operation.
TEST_P(GoldenStepPlan, MatchesItsFile) {
  v1::JobSpec spec = Job(GetParam().strategy, GetParam().micro_batches, v1::DATA_TYPE_BF16);
  spec.mutable_parallel()->set_reshard_after_forward(GetParam().reshard);
  spec.mutable_parallel()->set_prefetch(GetParam().prefetch);
  const RankPlan plan = BuildRankPlan(spec, /*rank=*/1, /*degree=*/4);
  EXPECT_EQ(Describe(plan.step, plan.inventory), Golden(GetParam().file));
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenStepPlan,
    ::testing::Values(GoldenCase{"ddp_one_round.txt", v1::STRATEGY_DDP, 4, true, 1},
                      GoldenCase{"ddp_two_rounds.txt", v1::STRATEGY_DDP, 8, true, 1},
                      GoldenCase{"zero3_one_round.txt", v1::STRATEGY_ZERO3, 4, true, 1},
                      GoldenCase{"zero3_two_rounds.txt", v1::STRATEGY_ZERO3, 8, true, 0},
                      GoldenCase{"zero3_kept.txt", v1::STRATEGY_ZERO3, 4, false, 1}));

// Every forward and every backward finds its parameters gathered, nothing is gathered twice, and
// all is freed at the end: for any prefetch.
TEST(StepPlan, GathersBeforeUseAndFreesAfterIt) {
  for (const int64_t prefetch : {0, 1, 2, 5, 100}) {
    for (const bool reshard : {true, false}) {
      for (const bool tied : {true, false}) {
        v1::JobSpec spec = Job(v1::STRATEGY_ZERO3, 7, v1::DATA_TYPE_FP32);
        spec.mutable_model()->set_tie_embeddings(tied);
        spec.mutable_parallel()->set_prefetch(prefetch);
        spec.mutable_parallel()->set_reshard_after_forward(reshard);
        const RankPlan plan = BuildRankPlan(spec, 0, 3);
        std::map<int, bool> gathered;
        const int head = static_cast<int>(plan.inventory.units.size()) - 1;
        for (const PlannedOp& op : plan.step.ops) {
          if (op.op == StepOp::kGather) {
            EXPECT_FALSE(gathered[op.unit]);
            gathered[op.unit] = true;
          }
          if (op.op == StepOp::kFree) {
            EXPECT_TRUE(gathered[op.unit]);
            gathered[op.unit] = false;
          }
          const bool reads =
              op.op == StepOp::kForward || (op.op == StepOp::kBackward && op.unit != 0);
          if (!reads) continue;
          EXPECT_TRUE(gathered[op.unit]) << op.unit;
          EXPECT_TRUE(op.unit != head || !tied || gathered[0]);
        }
        for (const auto& [unit, held] : gathered) EXPECT_FALSE(held) << unit;
      }
    }
  }
}

// The larger the model, the closer to section 3's wire bytes a step: ddp 2rS and zero3 3A·rS. What
// the head and the embedding save and the padding costs is below a hundredth here.
TEST(StepPlan, SendsWhatTheTheorySays) {
  for (const int64_t rounds : {1, 2, 5}) {
    const int degree = 4;
    for (const v1::Strategy strategy : {v1::STRATEGY_DDP, v1::STRATEGY_ZERO3}) {
      v1::JobSpec spec = Job(strategy, rounds * degree, v1::DATA_TYPE_BF16);
      spec.mutable_model()->set_layers(48);
      spec.mutable_model()->set_hidden(256);
      const v1::RankLedger ledger =
          PredictLedger(BuildRankPlan(NormalizeJobSpec(spec), 0, degree), spec, 0);
      const double s = 2.0 * static_cast<double>(BuildInventory(ShapeOf(spec.model())).elements);
      const double r = static_cast<double>(degree - 1) / degree;
      const double expected =
          strategy == v1::STRATEGY_DDP ? 2 * r * s : 3 * static_cast<double>(rounds) * r * s;
      const double predicted = static_cast<double>(ledger.wire().at("total").bytes().predicted());
      EXPECT_NEAR(predicted / expected, 1.0, 0.01) << rounds << " " << NameOf(strategy);
    }
  }
}

// Model state a rank, section 3: ddp 16N; zero3 16N/D; both byte models.
TEST(Ledger, HoldsSixteenBytesAParameterSplitAsTheStrategySays) {
  for (const v1::DataType type : {v1::DATA_TYPE_BF16, v1::DATA_TYPE_FP32}) {
    for (const v1::Strategy strategy : {v1::STRATEGY_DDP, v1::STRATEGY_ZERO3}) {
      for (const int degree : {1, 2, 3, 8}) {
        const v1::JobSpec spec = Job(strategy, degree, type);
        const RankPlan plan = BuildRankPlan(spec, 0, degree);
        int64_t padded = 0;
        for (const UnitLayout& unit : plan.layout.units) padded += unit.padded_elements;
        const v1::RankLedger ledger = PredictLedger(plan, spec, 0);
        const int64_t state = ledger.memory().at("params").predicted() +
                              ledger.memory().at("grads").predicted() +
                              ledger.memory().at("optimizer").predicted();
        const int64_t split = strategy == v1::STRATEGY_ZERO3 ? degree : 1;
        EXPECT_EQ(state, 16 * padded / split);
      }
    }
  }
}

}  // namespace
}  // namespace sherd
