#pragma once

#include "absl/strings/string_view.h"
#include "coordinator/core/state.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// All that `rank` of the job's current epoch needs to train: its groups, each with what its data
// move through (shared memory where all members are in one domain, else TCP), every peer's
// addresses, and its shards, which are cut over its data-parallel group where the strategy's row
// shards the optimizer's state, and are whole units where it does not. `secret` is what the epoch's
// data links present. The rank must exist, and its worker and those of its peers be known to
// `state`.
v1::Assignment BuildAssignment(const State& state, const JobRecord& job, int rank,
                               absl::string_view secret);

}  // namespace sherd
