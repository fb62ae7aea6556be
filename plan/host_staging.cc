#include "plan/host_staging.h"

#include <algorithm>

#include "plan/activations.h"
#include "plan/element_bytes.h"

namespace sherd {
namespace {

// Padded elements.
int64_t LargestUnit(const RankPlan& plan) {
  int64_t most = 0;
  for (const UnitLayout& unit : plan.layout.units) most = std::max(most, unit.padded_elements);
  return most;
}

}  // namespace

int64_t GatheredBytes(const RankPlan& plan) {
  if (plan.strategy.parameters != ParameterFlow::kGatherPerUse) return 0;
  return LargestUnit(plan) * plan.param_bytes;
}

// The statistics of a chunk of logits; and under sequence parallelism rows of the residual stream.
int64_t TensorGatheredBytes(const RankPlan& plan, const v1::JobSpec& spec) {
  const ModelPart& part = plan.part();
  if (part.place.degree == 1) return 0;
  const int64_t rows = spec.train().micro_batch() * spec.train().seq_len();
  const int64_t statistics = part.place.degree * HeadChunkRows(part, rows) * kLogitStatisticsBytes;
  return std::max(statistics, part.place.sequence ? rows * plan.shape.hidden * kFp32Bytes : 0);
}

int64_t LeafBytes(const RankPlan& plan) {
  if (plan.ScattersEachMicroBatch() || plan.micro_batches.rounds == 1) return 0;
  return LargestUnit(plan) * plan.grad_bytes;
}

}  // namespace sherd
