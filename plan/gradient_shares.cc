#include "plan/gradient_shares.h"

#include <algorithm>

#include "absl/functional/function_ref.h"

namespace sherd {
namespace {

// The parts of `range` that are of parameters that `belongs` tells, adjacent ones as one.
std::vector<ElementRange> Select(const Unit& unit, const ElementRange& range,
                                 absl::FunctionRef<bool(const Parameter&)> belongs) {
  std::vector<ElementRange> selected;
  for (const Parameter& parameter : unit.parameters) {
    const int64_t begin = std::max(parameter.offset, range.begin);
    const int64_t end = std::min(parameter.offset + parameter.elements, range.end);
    if (begin >= end || !belongs(parameter)) continue;
    if (!selected.empty() && selected.back().end == begin) {
      selected.back().end = end;
    } else {
      selected.push_back({begin, end});
    }
  }
  return selected;
}

}  // namespace

std::vector<ElementRange> SharedGradients(const Unit& unit, const ElementRange& owned,
                                          int members) {
  return Select(unit, owned, [&](const Parameter& parameter) {
    return parameter.partial_gradient && parameter.copies == members && !parameter.settings.frozen;
  });
}

std::vector<ElementRange> FirstHeld(const Unit& unit, const ElementRange& range, int tensor_index) {
  return Select(unit, range,
                [&](const Parameter& parameter) { return tensor_index % parameter.copies == 0; });
}

std::vector<ElementRange> TrainedIn(const Unit& unit, const std::vector<ElementRange>& ranges) {
  std::vector<ElementRange> trained;
  for (const ElementRange& range : ranges) {
    const std::vector<ElementRange> parts =
        Select(unit, range, [](const Parameter& parameter) { return !parameter.settings.frozen; });
    trained.insert(trained.end(), parts.begin(), parts.end());
  }
  return trained;
}

int64_t ElementsIn(const std::vector<ElementRange>& ranges) {
  int64_t elements = 0;
  for (const ElementRange& range : ranges) elements += range.size();
  return elements;
}

}  // namespace sherd
