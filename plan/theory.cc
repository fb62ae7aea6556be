#include "plan/theory.h"

#include "plan/element_bytes.h"

namespace sherd {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t ShardElements(const TheoryQuestion& question) {
  return CeilDivide(question.parameters, question.shard_group);
}

int64_t Held(const TheoryQuestion& question, Placement placement, int64_t element_bytes) {
  return element_bytes *
         (placement == Placement::kShard ? ShardElements(question) : question.parameters);
}

int64_t GathersAStep(const TheoryQuestion& question) {
  switch (question.strategy.parameters) {
    case ParameterFlow::kStayWhole:
      return 0;
    case ParameterFlow::kGatherAfterUpdate:
      return 1;
    case ParameterFlow::kGatherPerUse:
      return question.rounds * (question.reshard_after_forward ? 2 : 1);
  }
  return 0;
}

}  // namespace

StateBytes StateBytesOf(const TheoryQuestion& question) {
  const StrategyRow& row = question.strategy;
  return {Held(question, row.params, question.param_bytes),
          Held(question, row.grads, question.grad_bytes),
          Held(question, row.optimizer, OptimizerElementBytes(question.param_bytes))};
}

WireBytes WireBytesOf(const TheoryQuestion& question) {
  // In one pass over a group of K, a rank sends K − 1 shards: (K − 1) / K of the whole.
  const int64_t pass = (question.shard_group - 1) * ShardElements(question);
  WireBytes wire;
  wire.all_gather = GathersAStep(question) * pass * question.param_bytes;
  switch (question.strategy.gradients) {
    case GradientFlow::kAllReducePerStep:
      wire.all_reduce = 2 * pass * question.grad_bytes;
      break;
    case GradientFlow::kReduceScatterPerStep:
      wire.reduce_scatter = pass * question.grad_bytes;
      break;
    case GradientFlow::kReduceScatterPerMicroBatch:
      wire.reduce_scatter = question.rounds * pass * question.grad_bytes;
      break;
  }
  const int64_t replicas = question.degree / question.shard_group;
  wire.all_reduce +=
      2 * (replicas - 1) * CeilDivide(ShardElements(question), replicas) * question.grad_bytes;
  return wire;
}

int64_t RedundantBytes(const TheoryQuestion& question) {
  const int64_t replicas = question.degree / question.shard_group;
  const auto beyond_one = [&](Placement placement, int64_t element_bytes) {
    const int64_t copies = placement == Placement::kShard ? replicas : question.degree;
    return (copies - 1) * question.parameters * element_bytes;
  };
  const StrategyRow& row = question.strategy;
  return beyond_one(row.params, question.param_bytes) + beyond_one(row.grads, question.grad_bytes) +
         beyond_one(row.optimizer, OptimizerElementBytes(question.param_bytes));
}

std::optional<int64_t> GatheredBytes(const TheoryQuestion& question) {
  if (question.strategy.parameters != ParameterFlow::kGatherPerUse) return 0;
  if (question.reshard_after_forward) return std::nullopt;
  return question.parameters * question.param_bytes;
}

}  // namespace sherd
