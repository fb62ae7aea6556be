#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "kernels/ops.h"
#include "plan/parameters.h"
#include "worker/model/model.h"

namespace sherd {

// Where the parameters of a unit are, for the models.

// The offset of the unit's parameter `suffix`, which in a block follows the unit's name and a dot.
int64_t OffsetOf(const Unit& unit, absl::string_view suffix);

// What starts at an offset of the unit's flat buffer, which must be there.
ConstParam At(const UnitParams& unit, int64_t offset);
GradOut At(const UnitGrads& unit, int64_t offset, bool accumulate = false);

inline constexpr ConstParam kNoParam = {nullptr, DType::kF32};
inline constexpr GradOut kNoGrad = {nullptr, DType::kF32, false};

inline int64_t RowsOf(const MicroBatch& micro_batch) {
  return micro_batch.batch * micro_batch.tokens;
}

}  // namespace sherd
