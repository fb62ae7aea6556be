#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// The model of a preset with every field filled in; nothing when there is none of that name. The
// names are PresetNames() (plan/job_spec.h).
std::optional<v1::ModelSpec> FindPreset(absl::string_view name);

}  // namespace sherd
