#include "plan/theory.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/element_bytes.h"
#include "plan/ledger.h"
#include "plan/plan_report.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using testing::kStrategies;
using testing::MakeJob;

constexpr int64_t kSeven = 7'000'000'000;
constexpr int64_t kGiga = 1'000'000'000;

TheoryQuestion Ask(absl::string_view strategy, int64_t parameters, int degree, int64_t rounds = 1) {
  v1::JobSpec spec;
  testing::SetStrategy(strategy, spec);
  const StrategyChoice choice = ChoiceOf(spec.parallel());
  TheoryQuestion question;
  question.strategy = *FindStrategy(choice.strategy, choice.zero1_gradients);
  question.reshard_after_forward = choice.reshard_after_forward;
  question.parameters = parameters;
  question.degree = question.shard_group = degree;
  question.rounds = rounds;
  return question;
}

TEST(Theory, GivesTheFiguresOfSevenBillionParametersOnFourRanks) {
  const std::map<absl::string_view, std::pair<int64_t, int64_t>> state_and_wire = {
      {"ddp", {112'000, 21'000}},
      {"zero1", {49'000, 21'000}},
      {"zero1 all_reduce", {49'000, 31'500}},
      {"zero2", {38'500, 21'000}},
      {"zero3", {28'000, 31'500}},
      {"zero3 kept", {28'000, 21'000}}};
  for (const auto& [strategy, megabytes] : state_and_wire) {
    const TheoryQuestion question = Ask(strategy, kSeven, 4);
    EXPECT_EQ(StateBytesOf(question).total(), megabytes.first * 1'000'000) << strategy;
    EXPECT_EQ(WireBytesOf(question).total(), megabytes.second * 1'000'000) << strategy;
  }
}

TEST(Theory, GivesTheKnownBytesAParameterOnEightRanks) {
  const std::map<absl::string_view, double> figures = {
      {"ddp", 16}, {"zero1", 5.5}, {"zero2", 3.75}, {"zero3", 2}};
  for (const auto& [strategy, bytes] : figures) {
    EXPECT_EQ(static_cast<double>(StateBytesOf(Ask(strategy, 8 * kGiga, 8)).total()),
              bytes * 8 * kGiga)
        << strategy;
  }
}

TEST(Theory, KnowsFp32AndMixedGradients) {
  TheoryQuestion question = Ask("zero2", kGiga, 4);
  question.param_bytes = question.grad_bytes = 4;
  EXPECT_EQ(StateBytesOf(question).total(), 4 * kGiga + 12 * kGiga / 4);
  question = Ask("ddp", kGiga, 4);
  question.grad_bytes = 4;
  EXPECT_EQ(StateBytesOf(question).total(), 18 * kGiga);
}

// Wire, in rS: zero2 A + 1, zero3 3A or 2A, once-a-step strategies whatever A.
TEST(Theory, SendsMoreWithMoreRoundsWhereGradientsAreScatteredEachMicroBatch) {
  const std::map<absl::string_view, int64_t> at_five = {
      {"ddp", 2},   {"zero1", 2},  {"zero1 all_reduce", 3},
      {"zero2", 6}, {"zero3", 15}, {"zero3 kept", 10}};
  for (const auto& [strategy, times] : at_five) {
    EXPECT_EQ(WireBytesOf(Ask(strategy, 4 * kGiga, 4, 5)).total(), times * 6 * kGiga) << strategy;
  }
}

// 16N / K, and 3A·S(K−1)/K + 2(R−1)/R·S/K.
TEST(Theory, HybridIsZero3InsideAGroupAndAnAllReduceAcross) {
  TheoryQuestion question;
  question.strategy = *FindStrategy(v1::STRATEGY_HYBRID, v1::GRADIENT_REDUCTION_UNSPECIFIED);
  question.parameters = 8 * kGiga;
  question.degree = 8;
  question.shard_group = 2;
  question.rounds = 3;
  EXPECT_EQ(StateBytesOf(question).total(), 16 * 8 * kGiga / 2);
  EXPECT_EQ(WireBytesOf(question).total(), 9 * 16 * kGiga / 2 + 2 * 3 * 16 * kGiga / 2 / 4);
  EXPECT_EQ(WireBytesOf(question).all_reduce, 12 * kGiga);
  EXPECT_EQ(RedundantBytes(question), 3 * 16 * 8 * kGiga);
  question.shard_group = 8;
  EXPECT_EQ(WireBytesOf(question).total(), WireBytesOf(Ask("zero3", 8 * kGiga, 8, 3)).total());
}

TEST(Theory, KeepingParametersGathersThemAll) {
  EXPECT_EQ(GatheredBytes(Ask("zero3 kept", kGiga, 4)), 2 * kGiga);
  EXPECT_EQ(GatheredBytes(Ask("zero3", kGiga, 4)), std::nullopt);
  EXPECT_EQ(GatheredBytes(Ask("zero2", kGiga, 4)), 0);
}

TEST(Theory, HoldsAtItsLimits) {
  for (const absl::string_view strategy : kStrategies) {
    TheoryQuestion question = Ask(strategy, kMostTheoryParameters,
                                  static_cast<int>(kMostTheoryWorkers), kMostTheoryRounds);
    question.param_bytes = question.grad_bytes = 4;
    EXPECT_GT(WireBytesOf(question).total(), 0) << strategy;
    EXPECT_GE(RedundantBytes(question), 0) << strategy;
  }
  EXPECT_EQ(WireBytesOf(Ask("zero3", 1, 1)).total(), 0);
  EXPECT_EQ(StateBytesOf(Ask("zero3", 1, 7)).total(), 16);
}

// The ledger of a real model and the theory are two computations. Where every unit divides, they
// meet to the byte, but for what section 3 says is cheaper under zero3: the embedding's backward
// gathers nothing, the head's gather serves its backward too.
TEST(Theory, AgreesWithTheLedgerOfAModelWhoseUnitsDivide) {
  for (const v1::DataType type : {v1::DATA_TYPE_BF16, v1::DATA_TYPE_FP32}) {
    for (const absl::string_view strategy : kStrategies) {
      for (const int degree : {1, 2, 4}) {
        for (const int64_t rounds : {1, 3}) {
          const v1::JobSpec spec = MakeJob(strategy, type, rounds * degree, {.hidden = 128});
          const RankPlan plan = BuildRankPlan(spec, 0, degree);
          TheoryQuestion question = Ask(strategy, plan.inventory.elements, degree, rounds);
          question.param_bytes = question.grad_bytes = ElementBytes(type);
          const v1::RankLedger ledger = PredictLedger(plan, spec);
          ASSERT_EQ(ledger.memory().at("padding").predicted(), 0);
          const StateBytes state = StateBytesOf(question);
          EXPECT_EQ(ledger.memory().at("params").predicted(), state.params);
          EXPECT_EQ(ledger.memory().at("grads").predicted(), state.grads);
          EXPECT_EQ(ledger.memory().at("optimizer").predicted(), state.optimizer);
          const auto sent = [&](const char* collective) {
            const auto line = ledger.wire().find(collective);
            return line == ledger.wire().end() ? 0 : line->second.bytes().predicted();
          };
          int64_t saved = 0;
          if (strategy == "zero3") {
            const int64_t shards =
                plan.layout.units.front().shard_elements + plan.layout.units.back().shard_elements;
            saved = rounds * (degree - 1) * shards * question.param_bytes;
          }
          const WireBytes wire = WireBytesOf(question);
          const std::string where = absl::StrCat(strategy, " ", degree, " ", rounds);
          EXPECT_EQ(sent("all_gather"), wire.all_gather - saved) << where;
          EXPECT_EQ(sent("reduce_scatter"), wire.reduce_scatter) << where;
          EXPECT_EQ(sent("all_reduce"), wire.all_reduce) << where;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sherd
