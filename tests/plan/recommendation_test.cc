#include "plan/recommendation.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/cost_profiles.h"
#include "plan/ledger.h"
#include "plan/plan_report.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using testing::kStrategies;
using testing::MakeJob;

constexpr int64_t kGiB = int64_t{1} << 30;

std::vector<PlanReport> Theory(int64_t parameters, int degree, const MemoryLimits& limits) {
  std::vector<PlanReport> reports;
  for (const StrategyChoice& choice : StrategyChoices()) {
    TheoryQuestion question;
    question.strategy = *FindStrategy(choice.strategy, choice.zero1_gradients);
    question.reshard_after_forward = choice.reshard_after_forward;
    question.parameters = parameters;
    question.degree = question.shard_group = degree;
    reports.push_back(ReportOnTheory(question, limits, std::nullopt));
  }
  return reports;
}

std::string Chosen(const std::vector<PlanReport>& reports) {
  const std::optional<Recommendation> best = Recommend(reports);
  return best ? NameOf(reports[best->chosen].choice) : "none";
}

// Reports as ddp, zero1, zero3 of the given step seconds and needed bytes.
std::vector<PlanReport> Timed(const std::vector<std::pair<double, int64_t>>& seconds_and_bytes,
                              int64_t capacity) {
  std::vector<PlanReport> reports;
  const size_t choices[] = {0, 1, 4};
  for (const auto& [seconds, bytes] : seconds_and_bytes) {
    PlanReport report;
    report.choice = StrategyChoices()[choices[reports.size()]];
    report.state.params = bytes;
    report.peak_bytes = bytes;
    report.times = StepTimes{.step = seconds};
    report.checks = {{"device", capacity, bytes}};
    report.fits = bytes <= capacity;
    reports.push_back(report);
  }
  return reports;
}

// "not the highest stage: zero2 fits with 12 GiB to spare and sends a third less".
TEST(Recommendation, IsNotTheHighestStageWhenALowerOneFits) {
  const std::vector<PlanReport> reports = Theory(7'000'000'000, 4, {.device = 48 * kGiB});
  ASSERT_EQ(Chosen(reports), "zero2");
  const Recommendation best = *Recommend(reports);
  const PlanReport& highest = reports[best.highest];
  EXPECT_EQ(NameOf(highest.choice), "zero3");
  EXPECT_TRUE(*highest.fits);
  EXPECT_EQ(reports[best.chosen].wire_total * 3, highest.wire_total * 2);
  EXPECT_EQ(reports[best.chosen].SpareBytes() / kGiB, 12);
  EXPECT_EQ(NameOf(reports[*best.refused].choice), "ddp");
}

TEST(Recommendation, IsTheHighestStageWhenNothingElseFits) {
  EXPECT_EQ(Chosen(Theory(7'000'000'000, 4, {.device = 30 * kGiB})), "zero3");
  EXPECT_EQ(Chosen(Theory(7'000'000'000, 4, {.device = 20 * kGiB})), "none");
}

TEST(Recommendation, IsTheFastestThatFits) {
  EXPECT_EQ(Chosen(Timed({{1.0, 100}, {1.5, 60}, {2.0, 30}}, 1000)), "ddp");
  EXPECT_EQ(Chosen(Timed({{1.0, 100}, {1.5, 60}, {2.0, 30}}, 99)), "zero1");
  EXPECT_EQ(Chosen(Timed({{1.0, 100}, {1.5, 60}, {2.0, 30}}, 59)), "zero3");
}

TEST(Recommendation, TakesTheLeastMemoryAmongTheEquallyFast) {
  EXPECT_EQ(Chosen(Timed({{1.0, 100}, {1.02, 60}, {1.04, 30}}, 1000)), "zero1");
  EXPECT_EQ(Chosen(Timed({{1.0, 100}, {1.02, 60}, {1.03, 30}}, 1000)), "zero3");
  // Of equal ones the simplest.
  EXPECT_EQ(Chosen(Timed({{1.0, 100}, {1.0, 100}, {1.0, 100}}, 1000)), "ddp");
  EXPECT_EQ(Chosen(Theory(1000, 1, {})), "ddp");
}

TEST(PlanReport, HoldsEveryLimitAndCountsTheRanksOfAHost) {
  const v1::JobSpec spec = MakeJob("zero3", v1::DATA_TYPE_BF16, 4);
  const CostModel cost = *FindCostProfile("cpu");
  const int64_t peak = *ReportOnJob(spec, 4, {}, cost).peak_bytes;
  const auto fits = [&](const MemoryLimits& limits) {
    return ReportOnJob(spec, 4, limits, cost).fits;
  };
  EXPECT_EQ(fits({}), std::nullopt);
  EXPECT_EQ(fits({.device = peak}), true);
  EXPECT_EQ(fits({.device = peak - 1}), false);
  EXPECT_EQ(fits({.host = 3 * peak, .workers_per_host = 3}), true);
  EXPECT_EQ(fits({.host = 3 * peak - 1, .workers_per_host = 3}), false);
  // A host has no more ranks than the world.
  EXPECT_EQ(fits({.host = 4 * peak, .workers_per_host = 100}), true);
  EXPECT_EQ(fits({.device = peak, .host = 4 * peak - 1, .workers_per_host = 4}), false);
  EXPECT_EQ(
      ReportOnJob(spec, 4, {.device = peak + 5, .host = 4 * peak + 3, .workers_per_host = 4}, cost)
          .SpareBytes(),
      3);
}

// What `sherd plan` shows of rank 0 holds for all.
TEST(PlanReport, NoRankHoldsOrSendsMoreThanRankZero) {
  for (const absl::string_view strategy : kStrategies) {
    for (const int degree : {2, 3, 5, 8}) {
      for (const int64_t micro_batches : {1, 4, 7}) {
        const v1::JobSpec spec =
            MakeJob(strategy, v1::DATA_TYPE_BF16, micro_batches, {.hidden = 34, .ffn = 29});
        const v1::RankLedger first = PredictLedger(BuildRankPlan(spec, 0, degree), spec);
        for (int rank = 1; rank < degree; ++rank) {
          const v1::RankLedger other = PredictLedger(BuildRankPlan(spec, rank, degree), spec);
          for (const char* pool : {"peak", "params", "grads", "optimizer"}) {
            EXPECT_LE(other.memory().at(pool).predicted(), first.memory().at(pool).predicted());
          }
          EXPECT_LE(other.wire().at("total").bytes().predicted(),
                    first.wire().at("total").bytes().predicted());
        }
      }
    }
  }
}

// Nor in any grid, where members of a tensor-parallel group have shares of some gradients.
TEST(PlanReport, NoRankOfATensorParallelWorldHoldsMoreThanRankZero) {
  for (const absl::string_view strategy : kStrategies) {
    for (const bool sequence : {false, true}) {
      for (const bool llama : {false, true}) {
        for (const int degree : {1, 3, 4}) {
          v1::JobSpec spec = MakeJob(strategy, v1::DATA_TYPE_BF16, 4,
                                     {.hidden = 48, .heads = 4, .ffn = 28, .vocab = 259});
          if (llama) testing::MakeLlama(spec);
          if (llama) spec.mutable_model()->set_kv_heads(2);
          spec.mutable_parallel()->set_tensor(4);
          spec.mutable_parallel()->set_sequence_parallel(sequence);
          const auto peak = [&](int rank) {
            return PredictLedger(BuildRankPlan(spec, rank, 4 * degree), spec)
                .memory()
                .at("peak")
                .predicted();
          };
          for (int rank = 1; rank < 4 * degree; ++rank) EXPECT_LE(peak(rank), peak(0)) << strategy;
        }
      }
    }
  }
}

// The states of all ranks' ledgers, less one copy, to the byte also where sizes do not divide.
TEST(PlanReport, CountsWhatTheClusterHoldsMoreThanOnce) {
  for (const absl::string_view strategy : kStrategies) {
    for (const int degree : {1, 3, 4}) {
      const v1::JobSpec spec = MakeJob(strategy, v1::DATA_TYPE_BF16, 4, {.hidden = 34, .ffn = 29});
      int64_t held = 0;
      for (int rank = 0; rank < degree; ++rank) {
        const v1::RankLedger ledger = PredictLedger(BuildRankPlan(spec, rank, degree), spec);
        for (const char* pool : {"params", "grads", "optimizer"}) {
          held += ledger.memory().at(pool).predicted();
        }
      }
      const PlanReport report = ReportOnJob(spec, degree, {}, *FindCostProfile("cpu"));
      EXPECT_EQ(held, 16 * report.parameters + report.redundant_bytes) << strategy << degree;
    }
  }
}

TEST(PlanReport, ShowsTheLastRankWhereItDiffers) {
  const CostModel cost = *FindCostProfile("cpu");
  const v1::JobSpec even = MakeJob("zero3", v1::DATA_TYPE_BF16, 4, {.hidden = 128});
  EXPECT_EQ(ReportOnJob(even, 4, {}, cost).ranks.size(), 1u);
  EXPECT_EQ(ReportOnJob(even, 1, {}, cost).ranks.size(), 1u);
  const v1::JobSpec uneven = MakeJob("zero3", v1::DATA_TYPE_BF16, 3);
  const PlanReport report = ReportOnJob(uneven, 4, {}, cost);
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[1].rank(), 3);
}

TEST(PlanReport, NamesTheLargestConsumersFirst) {
  const std::vector<Consumer> state = LargestConsumers(Theory(7'000'000'000, 4, {})[0], 2);
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].pool, "optimizer");
  EXPECT_EQ(state[0].bytes, 84'000'000'000);
  const v1::JobSpec spec = MakeJob("ddp", v1::DATA_TYPE_BF16, 1);
  const std::vector<Consumer> pools =
      LargestConsumers(ReportOnJob(spec, 1, {}, *FindCostProfile("cpu")), 100);
  for (size_t i = 1; i < pools.size(); ++i) EXPECT_GE(pools[i - 1].bytes, pools[i].bytes);
  for (const Consumer& consumer : pools) EXPECT_NE(consumer.pool, "peak");
}

}  // namespace
}  // namespace sherd
