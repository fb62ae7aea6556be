#include "worker/model/unit_view.h"

#include <string>

#include "common/check.h"

namespace sherd {

int64_t OffsetOf(const Unit& unit, absl::string_view suffix) {
  const std::string name =
      unit.kind == UnitKind::kBlock ? unit.name + "." + std::string(suffix) : std::string(suffix);
  for (const Parameter& parameter : unit.parameters) {
    if (parameter.name == name) return parameter.offset;
  }
  SHERD_CHECK(false && "the inventory lacks a parameter of the model");
  return -1;
}

ConstParam At(const UnitParams& unit, int64_t offset) {
  SHERD_CHECK(unit.data != nullptr);
  return {static_cast<const std::byte*>(unit.data) + offset * SizeOf(unit.dtype), unit.dtype};
}

GradOut At(const UnitGrads& unit, int64_t offset, bool accumulate) {
  SHERD_CHECK(unit.data != nullptr);
  return {static_cast<std::byte*>(unit.data) + offset * SizeOf(unit.dtype), unit.dtype, accumulate};
}

}  // namespace sherd
