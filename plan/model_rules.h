#pragma once

#include <cstdint>

#include "plan/spec_rules.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

inline constexpr int64_t kMaxContext = int64_t{1} << 20;
// Of one attention head: GPUs have no kernels for more, and any worker may get a rank.
inline constexpr int64_t kMaxHeadChannels = 256;

// What a model must be, for ValidateJobSpec.
void CheckModel(const v1::ModelSpec& model, SpecRules& rules);

}  // namespace sherd
