#include "plan/strategy.h"

#include <array>

#include "plan/shard_layout.h"

namespace sherd {
namespace {

constexpr std::array<StrategyRow, 2> kTable = {{
    {v1::STRATEGY_DDP, Placement::kWhole, Placement::kWhole, Placement::kWhole,
     MicroBatchOrder::kConsecutive, GradientFlow::kAllReducePerStep, ParameterFlow::kStayWhole},
    {v1::STRATEGY_ZERO3, Placement::kShard, Placement::kShard, Placement::kShard,
     MicroBatchOrder::kRoundRobin, GradientFlow::kReduceScatterPerMicroBatch,
     ParameterFlow::kGatherPerUse},
}};

}  // namespace

absl::Span<const StrategyRow> StrategyTable() { return kTable; }

const StrategyRow* FindStrategy(v1::Strategy strategy) {
  for (const StrategyRow& row : kTable) {
    if (row.strategy == strategy) return &row;
  }
  return nullptr;
}

std::vector<v1::UnitShard> DescribeOwned(const Inventory& inventory, const StrategyRow& strategy,
                                         int degree, int index) {
  const bool shards = strategy.optimizer == Placement::kShard;
  return DescribeShards(inventory, BuildShardLayout(inventory, shards ? degree : 1),
                        shards ? index : 0);
}

}  // namespace sherd
