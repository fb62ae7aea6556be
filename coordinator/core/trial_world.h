#pragma once

#include <vector>

#include "coordinator/core/state.h"
#include "plan/candidates.h"
#include "plan/timeline.h"

namespace sherd {

// What the workers of a world, by rank, say of themselves: tensor degrees whose groups share
// memory, and the memory that each rank can have. On a processor ranks share their host's.
CandidateWorld WorldOf(const State& state, const std::vector<WorkerId>& workers);

// The cost model that stands in where nothing was measured: that of the workers' kind of device.
CostModel ProfileOf(const State& state, const std::vector<WorkerId>& workers);

}  // namespace sherd
