#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/timeline.h"

namespace sherd {

// A named cost model. Round figures of a kind of machine, to compare strategies with: estimates, no
// promise of a speed.
std::optional<CostModel> FindCostProfile(absl::string_view name);
std::vector<absl::string_view> CostProfileNames();

}  // namespace sherd
