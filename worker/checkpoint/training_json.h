#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// What a manifest says of the training that its checkpoint is of.
nlohmann::json TrainingJson(const TrainingInfo& training);
// kInvalidArgument. Values are what was written; whether they suit a job says CheckResumable.
absl::StatusOr<TrainingInfo> ParseTraining(const nlohmann::json& json);

}  // namespace sherd
