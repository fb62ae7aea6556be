#pragma once

#include <cstdint>
#include <vector>

#include "plan/spec_rules.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

inline constexpr int64_t kMaxWorkers = int64_t{1} << 16;

// How a job is cut up: the strategy and its settings, tensor parallelism of its model, and the
// worlds that its bounds leave. Every refusal names the nearest degrees or worlds that fit. For
// ValidateJobSpec; of a normalised specification, of which other parts may be wrong.
void CheckParallel(const v1::JobSpec& spec, SpecRules& rules);

// The multiples of `granule` around `workers` that a world of at most kMaxWorkers can have.
std::vector<int64_t> NearestWorlds(int64_t granule, int64_t workers);
// What a world is cut into: "tensor 4", "shard_group 2", "tensor 4 × shard_group 2".
std::string GranuleText(const v1::ParallelSpec& parallel);

}  // namespace sherd
