#include "plan/parameter_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/gradient_shares.h"
#include "plan/ledger.h"
#include "plan/model_flops.h"
#include "plan/name_patterns.h"
#include "plan/timeline.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

TEST(NamePatterns, StarsStandForAnyCharacters) {
  EXPECT_TRUE(MatchesPattern("wte.weight", "wte.weight"));
  EXPECT_TRUE(MatchesPattern("*", "wte.weight"));
  EXPECT_TRUE(MatchesPattern("*.bias", "h.0.ln_1.bias"));
  EXPECT_TRUE(MatchesPattern("h.*.mlp.*", "h.10.mlp.c_fc.weight"));
  EXPECT_TRUE(MatchesPattern("h.1*", "h.11.ln_1.bias"));
  EXPECT_TRUE(MatchesPattern("*b*", "b"));
  EXPECT_TRUE(MatchesPattern("a**b***", "ab"));
  EXPECT_TRUE(MatchesPattern("*ab", "aab"));
  EXPECT_FALSE(MatchesPattern("bias", "h.0.ln_1.bias"));
  EXPECT_FALSE(MatchesPattern("h.1.*", "h.11.ln_1.bias"));
  EXPECT_FALSE(MatchesPattern("*.bias", "h.0.bias.weight"));
  EXPECT_FALSE(MatchesPattern("h?0", "h.0"));
  EXPECT_FALSE(MatchesPattern("", "h"));
  EXPECT_FALSE(MatchesPattern("ab*", "a"));
}

TEST(NamePatterns, TheNearestTakeTheFewestChanges) {
  const std::vector<std::string> names = {"wte.weight", "h.0.attn.c_attn.weight",
                                          "h.0.attn.c_attn.bias", "h.0.mlp.c_fc.bias"};
  EXPECT_THAT(NearestToPattern("h.*.atn.*", names, 3),
              ElementsAre("h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"));
  EXPECT_THAT(NearestToPattern("wte.wieght", names, 3), ElementsAre("wte.weight"));
  EXPECT_THAT(NearestToPattern("h.9.*", names, 2), ::testing::SizeIs(2));
}

v1::JobSpec SmallJob(absl::string_view strategy = "zero3", int64_t micro_batches = 4) {
  return testing::MakeJob(strategy, v1::DATA_TYPE_BF16, micro_batches);
}

v1::ParameterGroup& AddGroup(v1::JobSpec& spec, const std::string& pattern) {
  v1::ParameterGroup& group = *spec.mutable_train()->mutable_optimizer()->add_groups();
  group.set_parameters(pattern);
  return group;
}

ParameterSettings SettingsOf(const v1::JobSpec& spec, const std::string& name) {
  for (const Unit& unit : BuildRankPlan(spec, 0, 1).inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.name == name) return parameter.settings;
    }
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

// F13
TEST(ParameterSettings, WithoutGroupsMatricesDecayAndTheRestDoesNot) {
  const v1::JobSpec spec = SmallJob();
  for (const Unit& unit : BuildRankPlan(spec, 0, 1).inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      const double decay = parameter.shape.size() == 2 ? 0.1 : 0.0;
      EXPECT_EQ(parameter.settings, (ParameterSettings{false, decay, 1})) << parameter.name;
    }
  }
}

// What the last group leaves open is as without any, whatever groups before it say.
TEST(ParameterSettings, TheLastGroupThatMatchesDecides) {
  v1::JobSpec spec = SmallJob();
  AddGroup(spec, "*").set_weight_decay(0.7);
  AddGroup(spec, "h.1.*").set_lr_scale(0.5);
  AddGroup(spec, "*.bias").set_weight_decay(0);
  EXPECT_EQ(SettingsOf(spec, "wte.weight"), (ParameterSettings{false, 0.7, 1}));
  EXPECT_EQ(SettingsOf(spec, "h.0.ln_1.weight"), (ParameterSettings{false, 0.7, 1}));
  EXPECT_EQ(SettingsOf(spec, "h.1.attn.c_attn.weight"), (ParameterSettings{false, 0.1, 0.5}));
  EXPECT_EQ(SettingsOf(spec, "h.1.ln_1.weight"), (ParameterSettings{false, 0, 0.5}));
  EXPECT_EQ(SettingsOf(spec, "h.1.ln_1.bias"), (ParameterSettings{false, 0, 1}));
}

RankPlan Frozen(const v1::JobSpec& job, std::initializer_list<const char*> patterns, int world,
                int rank = 0) {
  v1::JobSpec spec = job;
  for (const char* const pattern : patterns) spec.mutable_train()->add_freeze(pattern);
  return BuildRankPlan(spec, rank, world);
}

TEST(Freezing, FindsFrozenUnitsAndTheFirstThatIsTrained) {
  const RankPlan parts = Frozen(SmallJob(), {"wte.*", "h.0.*", "h.2.attn.*"}, 1);
  EXPECT_FALSE(parts.inventory.units[0].frozen);
  EXPECT_TRUE(parts.inventory.units[1].frozen);
  EXPECT_FALSE(parts.inventory.units[3].frozen);
  EXPECT_EQ(parts.inventory.first_trained, 0);
  EXPECT_EQ(Frozen(SmallJob(), {"w*", "h.0.*", "h.2.*"}, 1).inventory.first_trained, 2);
}

// Of all ranks together the norm counts what is trained, once.
TEST(Freezing, NormsCountWhatIsTrained) {
  for (const int world : {1, 2, 3}) {
    int64_t normed = 0;
    for (int rank = 0; rank < world; ++rank) {
      const RankPlan plan = Frozen(SmallJob(), {"wpe.*", "h.1.*", "*.ln_1.bias"}, world, rank);
      for (size_t unit = 0; unit < plan.inventory.units.size(); ++unit) {
        normed += ElementsIn(plan.Normed(static_cast<int>(unit)));
      }
    }
    const Inventory inventory = BuildInventory(ShapeOf(SmallJob().model()));
    EXPECT_EQ(normed, inventory.elements - 32 * 64 - inventory.units[2].elements - 2 * 64);
  }
}

std::set<int> UnitsOf(const StepPlan& plan, std::initializer_list<StepOp> kinds) {
  std::set<int> units;
  for (const PlannedOp& op : plan.ops) {
    for (const StepOp kind : kinds) {
      if (op.op != kind) continue;
      for (int unit = op.unit; unit < op.unit + op.units; ++unit) units.insert(unit);
    }
  }
  return units;
}

// Backward ends at the first unit that is trained; gradients of frozen ones are not summed, and
// their parameters not gathered after the update, but every unit's state becomes the next
// version's.
TEST(Freezing, LeavesOutWhatIsOfNoUse) {
  for (const int64_t micro_batches : {4, 8}) {
    for (const int64_t bucket_mb : {0, 25}) {
      for (const absl::string_view strategy : testing::StrategiesOf(4)) {
        v1::JobSpec spec = SmallJob(strategy, micro_batches);
        spec.mutable_parallel()->set_bucket_mb(bucket_mb);
        const StepPlan plan = Frozen(spec, {"w*", "h.0.*", "h.2.*"}, 4).step;
        const std::string text = absl::StrCat(strategy, micro_batches);
        EXPECT_THAT(UnitsOf(plan, {StepOp::kBackward}), ElementsAre(2, 3, 4)) << text;
        EXPECT_THAT(UnitsOf(plan, {StepOp::kReduceScatter, StepOp::kAllReduce}), ElementsAre(2, 4))
            << text;
        EXPECT_THAT(UnitsOf(plan, {StepOp::kUpdate}), ElementsAre(0, 1, 2, 3, 4)) << text;
        for (const PlannedOp& op : plan.ops) {
          if (op.op == StepOp::kGather && op.round < 0) {
            EXPECT_TRUE(op.unit == 2 || op.unit == 4) << text;
          }
          if (op.op == StepOp::kReduceReplicas || op.op == StepOp::kAccumulate) {
            EXPECT_TRUE(op.unit == 2 || op.unit == 4) << text;
          }
        }
      }
    }
  }
}

TEST(Freezing, SumsTheTrainedShardsOfAllReplicas) {
  const StepPlan plan = Frozen(SmallJob("hybrid 2", 8), {"w*", "h.0.*", "h.2.*"}, 4).step;
  EXPECT_THAT(UnitsOf(plan, {StepOp::kReduceReplicas}), ElementsAre(2, 4));
  EXPECT_THAT(UnitsOf(Frozen(SmallJob("hybrid 2", 8), {}, 4).step, {StepOp::kReduceReplicas}),
              ElementsAre(0, 1, 2, 3, 4));
}

// Every forward and backward finds its parameters gathered once, and all is freed at the end.
TEST(Freezing, GathersBeforeUseAndFreesAfterIt) {
  for (const absl::string_view strategy : {"zero3", "zero3 kept"}) {
    for (const bool tied : {true, false}) {
      v1::JobSpec spec = SmallJob(strategy, 7);
      spec.mutable_model()->set_tie_embeddings(tied);
      std::set<int> gathered;
      for (const PlannedOp& op : Frozen(spec, {"w*", "h.0.*", "h.1.*"}, 3).step.ops) {
        if (op.op == StepOp::kGather) {
          EXPECT_TRUE(gathered.insert(op.unit).second);
        }
        if (op.op == StepOp::kFree) {
          EXPECT_EQ(gathered.erase(op.unit), 1u);
        }
        if (op.op == StepOp::kForward || op.op == StepOp::kBackward) {
          EXPECT_EQ(gathered.count(op.unit), 1u) << op.unit;
          EXPECT_TRUE(op.unit != 4 || !tied || gathered.count(0) == 1);
        }
      }
      EXPECT_TRUE(gathered.empty());
    }
  }
}

// What is kept of a frozen parameter is what is kept of any; what is sent is less.
TEST(Freezing, ChangesNoMemoryAndSendsLess) {
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    const v1::JobSpec spec = SmallJob(strategy);
    const v1::RankLedger all = PredictLedger(Frozen(spec, {}, 4), spec);
    const v1::RankLedger less = PredictLedger(Frozen(spec, {"w*", "h.0.*", "h.1.*"}, 4), spec);
    for (const auto& [pool, line] : all.memory()) {
      // Blocks without a backward need not stay gathered for it.
      if (pool == "gathered" || pool == "peak") continue;
      EXPECT_EQ(less.memory().at(pool).predicted(), line.predicted()) << strategy << " " << pool;
    }
    EXPECT_LT(less.wire().at("total").bytes().predicted(),
              all.wire().at("total").bytes().predicted());
  }
}

// F56: forward of all units, backward of those that are trained and what lies behind them.
TEST(Freezing, TakesBackwardOutOfTheEstimates) {
  const v1::JobSpec spec = SmallJob("ddp", 1);
  const RankPlan all = Frozen(spec, {}, 1);
  const RankPlan less = Frozen(spec, {"w*", "h.0.*"}, 1);
  const int64_t seq_len = spec.train().seq_len();
  const int64_t tokens = spec.train().micro_batch() * seq_len;
  const double block =
      ForwardFlops(all.shape, all.inventory, all.inventory.units[1], seq_len, tokens);
  EXPECT_EQ(TrainingFlops(all.shape, all.inventory, seq_len, tokens) -
                TrainingFlops(less.shape, less.inventory, seq_len, tokens),
            2 * block);
  CostModel cost = {.flops = 1, .bandwidth = 1, .tensor_bandwidth = 1};
  EXPECT_NEAR(EstimateStep(all, spec, cost).compute - EstimateStep(less, spec, cost).compute,
              2 * block, 1);
  cost = {.flops = 1e30, .bandwidth = 1, .tensor_bandwidth = 1, .optimizer_seconds = 1};
  const int64_t frozen = all.inventory.units[0].elements + all.inventory.units[1].elements;
  EXPECT_NEAR(EstimateStep(all, spec, cost).compute - EstimateStep(less, spec, cost).compute,
              static_cast<double>(frozen), 1e-3);
}

}  // namespace
}  // namespace sherd
