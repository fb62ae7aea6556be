#pragma once

#include <cstdint>
#include <map>
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
// either, ranks from the next one on, round to the one before; then idle workers. Of other hosts'
// ranks those that store fewest already go first: the ranks of a host are not all stored by one.
// Fewer where there are fewer, or where they cannot be reached: by their addresses, or as links
// showed that broke.
std::vector<std::vector<WorkerId>> ChooseHolders(const State& state, const JobRecord& job);

// Of the job's current epoch: by holder that shares no memory with them, the ranks whose shards it
// stores, ascending.
std::map<WorkerId, std::vector<int>> StoredOverNetwork(const State& state, const JobRecord& job);

}  // namespace sherd
