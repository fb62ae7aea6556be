#include "plan/strategy.h"

#include <array>

#include "plan/shard_layout.h"

namespace sherd {
namespace {

constexpr auto kAny = v1::GRADIENT_REDUCTION_UNSPECIFIED;
constexpr Placement kWhole = Placement::kWhole;
constexpr Placement kShard = Placement::kShard;

constexpr std::array<StrategyRow, 6> kTable = {{
    {v1::STRATEGY_DDP, kAny, kWhole, kWhole, kWhole, ReplicaUnit::kRank,
     GradientFlow::kAllReducePerStep, ParameterFlow::kStayWhole},
    {v1::STRATEGY_ZERO1, v1::GRADIENT_REDUCTION_REDUCE_SCATTER, kWhole, kWhole, kShard,
     ReplicaUnit::kRank, GradientFlow::kReduceScatterPerStep, ParameterFlow::kGatherAfterUpdate},
    {v1::STRATEGY_ZERO1, v1::GRADIENT_REDUCTION_ALL_REDUCE, kWhole, kWhole, kShard,
     ReplicaUnit::kRank, GradientFlow::kAllReducePerStep, ParameterFlow::kGatherAfterUpdate},
    {v1::STRATEGY_ZERO2, kAny, kWhole, kShard, kShard, ReplicaUnit::kGroup,
     GradientFlow::kReduceScatterPerMicroBatch, ParameterFlow::kGatherAfterUpdate},
    {v1::STRATEGY_ZERO3, kAny, kShard, kShard, kShard, ReplicaUnit::kGroup,
     GradientFlow::kReduceScatterPerMicroBatch, ParameterFlow::kGatherPerUse},
    {v1::STRATEGY_HYBRID, kAny, kShard, kShard, kShard, ReplicaUnit::kShardGroup,
     GradientFlow::kReduceScatterPerMicroBatch, ParameterFlow::kGatherPerUse},
}};

}  // namespace

absl::Span<const StrategyRow> StrategyTable() { return kTable; }

const StrategyRow* FindStrategy(v1::Strategy strategy, v1::GradientReduction zero1_gradients) {
  for (const StrategyRow& row : kTable) {
    if (row.strategy != strategy) continue;
    if (row.variant == kAny || row.variant == zero1_gradients) return &row;
  }
  return nullptr;
}

const StrategyRow* FindStrategy(const v1::ParallelSpec& parallel) {
  return FindStrategy(parallel.strategy(), parallel.zero1_gradients());
}

std::vector<v1::Strategy> SupportedStrategies() {
  std::vector<v1::Strategy> strategies;
  for (const StrategyRow& row : kTable) {
    if (strategies.empty() || strategies.back() != row.strategy) strategies.push_back(row.strategy);
  }
  return strategies;
}

int ReplicasOf(const StrategyRow& strategy, const v1::ParallelSpec& parallel, int degree) {
  switch (strategy.replica) {
    case ReplicaUnit::kRank:
      return degree;
    case ReplicaUnit::kGroup:
      return 1;
    case ReplicaUnit::kShardGroup:
      return degree / static_cast<int>(parallel.shard_group());
  }
  return 1;
}

int ShardDegreeOf(const StrategyRow& strategy, const v1::ParallelSpec& parallel, int degree) {
  return strategy.replica == ReplicaUnit::kShardGroup ? static_cast<int>(parallel.shard_group())
                                                      : degree;
}

std::vector<v1::UnitShard> DescribeOwned(const Inventory& inventory, const StrategyRow& strategy,
                                         const v1::ParallelSpec& parallel, int degree, int index) {
  const int shards =
      strategy.optimizer == Placement::kShard ? ShardDegreeOf(strategy, parallel, degree) : 1;
  return DescribeShards(inventory, BuildShardLayout(inventory, shards), index % shards);
}

}  // namespace sherd
