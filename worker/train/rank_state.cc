#include "worker/train/rank_state.h"

#include <algorithm>
#include <vector>

#include "worker/model/init.h"

namespace sherd {

namespace {

// Elements [begin, end) of a unit's flat buffer as they start; `to` holds them.
void InitializeElements(const Unit& unit, uint64_t seed, const ElementRange& range, float* to) {
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, range.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, range.end);
    if (begin >= end) continue;
    InitializeRange(parameter, seed, begin - parameter.offset, end - parameter.offset,
                    to + (begin - range.begin));
  }
}

// Elements that are made in fp32 at one time, where they are stored in another type.
constexpr int64_t kPieceElements = int64_t{1} << 16;

}  // namespace

void StoreParameters(UnitMemory& unit, DType type, Ops& ops) {
  if (reinterpret_cast<std::byte*>(unit.state.master) == unit.owned_params) return;
  ops.Cast(unit.state.master, DType::kF32, unit.owned_params, type, unit.owned.size());
}

void InitializeParameters(const RankPlan& plan, uint64_t seed, RankMemory& memory, Ops& ops) {
  std::vector<float> piece(static_cast<size_t>(kPieceElements));
  for (size_t index = 0; index < plan.inventory.units.size(); ++index) {
    const Unit& description = plan.inventory.units[index];
    UnitMemory& unit = memory.unit(static_cast<int>(index));
    InitializeElements(description, seed, unit.owned, unit.state.master);
    const int64_t padded = plan.layout.units[index].padded_elements;
    if (plan.strategy.params == Placement::kShard || unit.owned.size() == padded) {
      StoreParameters(unit, memory.param_type(), ops);
      continue;
    }
    for (int64_t begin = 0; begin < padded; begin += kPieceElements) {
      const ElementRange range{begin, std::min(begin + kPieceElements, padded)};
      std::fill(piece.begin(), piece.end(), 0.0f);
      InitializeElements(description, seed, range, piece.data());
      ops.Cast(piece.data(), DType::kF32, unit.params + begin * plan.param_bytes,
               memory.param_type(), range.size());
    }
  }
}

}  // namespace sherd
