#include "worker/train/rank_state.h"

#include <algorithm>

#include "worker/model/init.h"

namespace sherd {

void InitializeParameters(const RankPlan& plan, uint64_t seed, RankMemory& memory, Ops& ops) {
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    UnitMemory& unit = memory.unit(static_cast<int>(index));
    for (const Parameter& parameter : plan.inventory.units[index].parameters) {
      const int64_t begin = std::max(parameter.offset, unit.owned.begin);
      const int64_t end = std::min(parameter.offset + parameter.elements, unit.owned.end);
      if (begin >= end) continue;
      InitializeRange(parameter, seed, begin - parameter.offset, end - parameter.offset,
                      unit.master + (begin - unit.owned.begin));
    }
    if (memory.param_type() != DType::kF32) {
      ops.Cast(unit.master, DType::kF32, unit.params, memory.param_type(), unit.owned.size());
    }
  }
}

}  // namespace sherd
