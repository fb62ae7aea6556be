// What is asked of a probe, and what follows from its figures.

#include "plan/probe_cost.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/cost_profiles.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

constexpr double kBandwidth = 2e9;
constexpr double kPerMessage = 5e-6;

void AddFigure(v1::TrialReport& report, const char* op, int64_t size, int64_t stride, int64_t bytes,
               double seconds) {
  v1::CollectiveFigure& figure = *report.add_collectives();
  figure.set_op(op);
  figure.set_group_size(size);
  figure.set_stride(stride);
  figure.set_bytes(bytes);
  figure.set_seconds(seconds);
}

// All-gathers of a small and a large message over links of this speed.
void AddLine(v1::TrialReport& report, int64_t size, int64_t stride, double bandwidth) {
  for (const int64_t bytes : {int64_t{1} << 10, int64_t{1} << 20}) {
    AddFigure(report, "all_gather", size, stride, bytes,
              static_cast<double>(size - 1) * kPerMessage + static_cast<double>(bytes) / bandwidth);
  }
}

v1::ParallelSpec Parallel(v1::Strategy strategy, int64_t tensor, int64_t shard_group = 0) {
  v1::ParallelSpec parallel;
  parallel.set_strategy(strategy);
  parallel.set_tensor(tensor);
  parallel.set_shard_group(shard_group);
  parallel.set_zero1_gradients(v1::GRADIENT_REDUCTION_REDUCE_SCATTER);
  return parallel;
}

TEST(Probe, GroupsOfEveryScaleAreTimed) {
  EXPECT_THAT(ProbeGroupSizes(1), ElementsAre());
  EXPECT_THAT(ProbeGroupSizes(2), ElementsAre(2));
  EXPECT_THAT(ProbeGroupSizes(3), ElementsAre(3));
  EXPECT_THAT(ProbeGroupSizes(12), ElementsAre(2, 4, 12));
  EXPECT_THAT(ProbeGroupSizes(1024), ElementsAre(2, 4, 8, 16, 32, 1024));
  EXPECT_THAT(ProbeStrides(2, 12), ElementsAre(1, 6));
  EXPECT_THAT(ProbeStrides(12, 12), ElementsAre(1));
}

TEST(Probe, TheSlowestRanksFigureCounts) {
  std::vector<v1::TrialReport> reports(2);
  reports[0].set_matmul_flops_per_second(3e9);
  reports[1].set_matmul_flops_per_second(2e9);
  reports[0].set_copy_bytes_per_second(4e9);
  reports[1].set_copy_bytes_per_second(std::numeric_limits<double>::quiet_NaN());
  reports[0].set_step_seconds(0.5);
  reports[1].set_step_seconds(0.7);
  AddFigure(reports[0], "all_gather", 2, 1, 1024, 1e-3);
  AddFigure(reports[1], "all_gather", 2, 1, 1024, 2e-3);
  AddFigure(reports[1], "all_gather", 2, 1, 2048, -1);
  const v1::TrialReport slowest = SlowestOf(reports);
  EXPECT_EQ(slowest.matmul_flops_per_second(), 2e9);
  EXPECT_EQ(slowest.copy_bytes_per_second(), 4e9);
  EXPECT_EQ(slowest.step_seconds(), 0.7);
  ASSERT_EQ(slowest.collectives_size(), 1);
  EXPECT_EQ(slowest.collectives(0).seconds(), 2e-3);
}

TEST(Probe, ItsFiguresTakeTheProfilesPlace) {
  v1::TrialReport probe;
  probe.set_matmul_flops_per_second(80e9);
  probe.set_copy_bytes_per_second(7e9);
  AddLine(probe, 4, 1, kBandwidth);
  const CostModel profile = *FindCostProfile("cpu");
  const CostModel cost = CostFromProbe(probe, profile, Parallel(v1::STRATEGY_ZERO2, 1), 4);
  EXPECT_EQ(cost.flops, 80e9);
  EXPECT_DOUBLE_EQ(cost.optimizer_seconds, 28 / 14e9);
  EXPECT_DOUBLE_EQ(cost.fold_seconds, 6 / 14e9);
  EXPECT_NEAR(cost.bandwidth, kBandwidth, 1e-3 * kBandwidth);
  EXPECT_NEAR(cost.seconds_per_message, kPerMessage, 1e-3 * kPerMessage);
  EXPECT_EQ(cost.shares_cores, profile.shares_cores);
}

TEST(Probe, WhatItDoesNotSayStays) {
  const CostModel profile = *FindCostProfile("cpu");
  const CostModel cost = CostFromProbe({}, profile, Parallel(v1::STRATEGY_ZERO2, 1), 4);
  EXPECT_EQ(cost.flops, profile.flops);
  EXPECT_EQ(cost.bandwidth, profile.bandwidth);
  EXPECT_EQ(cost.fold_seconds, profile.fold_seconds);
}

// Tensor groups are adjacent ranks, data-parallel ones are as far apart as those are wide.
TEST(Probe, EachGroupHasTheSpeedOfTheGroupsMostLikeIt) {
  v1::TrialReport probe;
  AddLine(probe, 2, 1, 8e9);
  AddLine(probe, 4, 2, 1e9);
  AddLine(probe, 8, 1, 2e9);
  const CostModel profile = *FindCostProfile("cpu");
  const CostModel grid = CostFromProbe(probe, profile, Parallel(v1::STRATEGY_ZERO3, 2), 8);
  EXPECT_NEAR(grid.bandwidth, 1e9, 1e6);
  EXPECT_NEAR(grid.tensor_bandwidth, 8e9, 8e6);
  const CostModel flat = CostFromProbe(probe, profile, Parallel(v1::STRATEGY_ZERO3, 1), 8);
  EXPECT_NEAR(flat.bandwidth, 2e9, 2e6);
  const CostModel hybrid = CostFromProbe(probe, profile, Parallel(v1::STRATEGY_HYBRID, 1, 2), 8);
  EXPECT_NEAR(hybrid.bandwidth, 8e9, 8e6);
}

TEST(Probe, SummingIsWhatAReduceScatterTakesBesideItsBytes) {
  v1::TrialReport probe;
  AddLine(probe, 2, 1, kBandwidth);
  const int64_t bytes = 1 << 20;
  const double fold = 2e-9;
  AddFigure(probe, "reduce_scatter", 2, 1, bytes,
            kPerMessage + static_cast<double>(bytes) / kBandwidth +
                static_cast<double>(bytes / 2) * fold);
  const CostModel cost =
      CostFromProbe(probe, *FindCostProfile("cpu"), Parallel(v1::STRATEGY_ZERO2, 1), 2);
  EXPECT_NEAR(cost.fold_seconds, fold, 1e-2 * fold);
}

}  // namespace
}  // namespace sherd
