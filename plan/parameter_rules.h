#pragma once

#include "plan/spec_rules.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// What train.optimizer.groups and train.freeze must be, for ValidateJobSpec. Only a model that is
// right has names that patterns can match.
void CheckParameterRules(const v1::JobSpec& spec, bool model_is_right, SpecRules& rules);

}  // namespace sherd
