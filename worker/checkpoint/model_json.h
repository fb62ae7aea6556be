#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "plan/model_shape.h"

namespace sherd {

// A model's shape in a manifest.
nlohmann::json ModelJson(const ModelShape& model);
// kInvalidArgument for a shape that cannot be.
absl::StatusOr<ModelShape> ParseModel(const nlohmann::json& json);

}  // namespace sherd
