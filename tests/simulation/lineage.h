#pragma once

#include <string>

#include "tests/simulation/holdings.h"

namespace sherd::simulation {

// The one state is the other's past, or the same.
bool IsPrefix(const Lineage& shorter, const Lineage& longer);
// "step 3 (epochs 1 1 2)".
std::string Described(const Lineage& lineage);

}  // namespace sherd::simulation
