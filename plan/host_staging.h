#pragma once

#include <cstdint>

#include "plan/ledger.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// What passes through memory of the host of a rank whose device has memory of its own, beside what
// lies in arenas: the most at one time.

// That those who share the rank's shards gather elsewhere than in the arena; and its
// tensor-parallel group.
int64_t GatheredBytes(const RankPlan& plan);
int64_t TensorGatheredBytes(const RankPlan& plan, const v1::JobSpec& spec);

// A unit's whole gradients that a device has computed, to sum those of several rounds.
int64_t LeafBytes(const RankPlan& plan);

}  // namespace sherd
