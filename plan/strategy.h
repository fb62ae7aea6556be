#pragma once

#include <vector>

#include "absl/types/span.h"
#include "plan/parameters.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

enum class Placement { kWhole, kShard };

// Which micro-batches g of a step a rank computes.
enum class MicroBatchOrder {
  kConsecutive,  // a rank takes `rounds` consecutive g and accumulates them itself
  kRoundRobin,   // round a takes the next D g, one a rank
};

enum class GradientFlow { kAllReducePerStep, kReduceScatterPerMicroBatch };
enum class ParameterFlow { kStayWhole, kGatherPerUse };

// What a strategy means. Code asks the row and never compares strategies.
struct StrategyRow {
  v1::Strategy strategy;
  Placement params;
  Placement grads;
  Placement optimizer;
  MicroBatchOrder order;
  GradientFlow gradients;
  ParameterFlow parameters;
};

// The rows that this build executes.
absl::Span<const StrategyRow> StrategyTable();
// nullptr when this build does not execute the strategy.
const StrategyRow* FindStrategy(v1::Strategy strategy);

// What rank `index` of a data-parallel group of `degree` ranks updates of every unit, as the
// coordinator sends it: its shard, or all of it where the optimizer state stays whole.
std::vector<v1::UnitShard> DescribeOwned(const Inventory& inventory, const StrategyRow& strategy,
                                         int degree, int index);

}  // namespace sherd
