#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// The model of a preset, but for what its architecture's defaults say; nothing when there is none
// of that name. The names are PresetNames() (plan/job_spec.h).
std::optional<v1::ModelSpec> FindPreset(absl::string_view name);

}  // namespace sherd
