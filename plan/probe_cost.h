#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "plan/timeline.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// What a probe asks, and what follows from its answers.

// Sizes of the groups whose collectives are timed in a world of `ranks`: divisors of it from 2 on,
// each at least twice the one before, and the world.
std::vector<int64_t> ProbeGroupSizes(int ranks);

// The distances between members of groups of `size` that are timed: 1, and as far apart as all fit
// in. Each once.
std::vector<int64_t> ProbeStrides(int64_t size, int ranks);

// Of each figure the slowest rank's: a step waits for it. Figures that are no numbers above 0 are
// left out.
v1::TrialReport SlowestOf(absl::Span<const v1::TrialReport> reports);

// `profile` with the probe's figures in place of its own, for a world of `ranks` that is cut up as
// `parallel` says: of the groups that were timed those that are most like its own. What the probe
// does not say stays. A copied byte is read and written; AdamW moves 28 bytes a parameter and a
// fold 6 (plan/cost_profiles.cc), at that rate.
CostModel CostFromProbe(const v1::TrialReport& probe, const CostModel& profile,
                        const v1::ParallelSpec& parallel, int ranks);

}  // namespace sherd
