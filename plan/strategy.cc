#include "plan/strategy.h"

#include <array>

#include "plan/shard_layout.h"

namespace sherd {
namespace {

constexpr auto kAny = v1::GRADIENT_REDUCTION_UNSPECIFIED;
constexpr Placement kWhole = Placement::kWhole;
constexpr Placement kShard = Placement::kShard;

constexpr std::array<StrategyRow, 5> kTable = {{
    {v1::STRATEGY_DDP, kAny, kWhole, kWhole, kWhole, MicroBatchOrder::kConsecutive,
     GradientFlow::kAllReducePerStep, ParameterFlow::kStayWhole},
    {v1::STRATEGY_ZERO1, v1::GRADIENT_REDUCTION_REDUCE_SCATTER, kWhole, kWhole, kShard,
     MicroBatchOrder::kConsecutive, GradientFlow::kReduceScatterPerStep,
     ParameterFlow::kGatherAfterUpdate},
    {v1::STRATEGY_ZERO1, v1::GRADIENT_REDUCTION_ALL_REDUCE, kWhole, kWhole, kShard,
     MicroBatchOrder::kConsecutive, GradientFlow::kAllReducePerStep,
     ParameterFlow::kGatherAfterUpdate},
    {v1::STRATEGY_ZERO2, kAny, kWhole, kShard, kShard, MicroBatchOrder::kRoundRobin,
     GradientFlow::kReduceScatterPerMicroBatch, ParameterFlow::kGatherAfterUpdate},
    {v1::STRATEGY_ZERO3, kAny, kShard, kShard, kShard, MicroBatchOrder::kRoundRobin,
     GradientFlow::kReduceScatterPerMicroBatch, ParameterFlow::kGatherPerUse},
}};

}  // namespace

absl::Span<const StrategyRow> StrategyTable() { return kTable; }

const StrategyRow* FindStrategy(const v1::ParallelSpec& parallel) {
  for (const StrategyRow& row : kTable) {
    if (row.strategy != parallel.strategy()) continue;
    if (row.variant == kAny || row.variant == parallel.zero1_gradients()) return &row;
  }
  return nullptr;
}

std::vector<v1::Strategy> SupportedStrategies() {
  std::vector<v1::Strategy> strategies;
  for (const StrategyRow& row : kTable) {
    if (strategies.empty() || strategies.back() != row.strategy) strategies.push_back(row.strategy);
  }
  return strategies;
}

std::vector<v1::UnitShard> DescribeOwned(const Inventory& inventory, const StrategyRow& strategy,
                                         int degree, int index) {
  const bool shards = strategy.optimizer == Placement::kShard;
  return DescribeShards(inventory, BuildShardLayout(inventory, shards ? degree : 1),
                        shards ? index : 0);
}

}  // namespace sherd
