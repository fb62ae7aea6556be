#pragma once

#include <vector>

#include "common/ids.h"
#include "coordinator/core/state.h"

namespace sherd {

// How many processes beside its own a rank's shard is to be stored in.
int64_t WantedCopies(const v1::JobSpec& spec);

// Of the job's current epoch: the processes beside its own in which the rarest shard is stored.
int64_t FewestCopies(const JobRecord& job);

// By rank of the job's current epoch, whose workers are all alive: who stores its shard beside its
// own process and those of the ranks that hold the same shard anyway, so that there are
// WantedCopies together. Workers of other hosts come first, then those of the same one; among
// either, ranks from the next one on, round to the one before; then idle workers. Fewer where there
// are fewer, or where they cannot be reached.
std::vector<std::vector<WorkerId>> ChooseHolders(const State& state, const JobRecord& job);

}  // namespace sherd
