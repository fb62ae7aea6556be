#pragma once

#include <cstdint>

#include "plan/spec_rules.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// What is wrong with a normalised job's data, as far as can be said without looking at a file.
void CheckData(const v1::DataSpec& data, int64_t vocab, SpecRules& rules);

}  // namespace sherd
