#include "plan/offload.h"

#include <algorithm>

#include "plan/element_bytes.h"

namespace sherd {

int64_t OffloadChunkElements(const RankPlan& plan) {
  int64_t most = 0;
  for (size_t unit = 0; unit < plan.layout.units.size(); ++unit) {
    most = std::max(most, plan.Owned(static_cast<int>(unit)).size());
  }
  return std::min(most, kOffloadChunkElements);
}

int64_t OffloadRingBytes(const RankPlan& plan) {
  return kOffloadSlots * OffloadChunkElements(plan) * OptimizerElementBytes(plan.param_bytes);
}

}  // namespace sherd
