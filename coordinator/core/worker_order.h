#pragma once

#include <vector>

#include "coordinator/core/state.h"

namespace sherd {

// Sorts by host and name, "cpu:9" before "cpu:10": adjacent ranks share a host where possible.
void SortByPlace(std::vector<const WorkerState*>& workers);

}  // namespace sherd
