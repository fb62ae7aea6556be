#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/yaml_tree.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// One key of the job file.
struct JobKey {
  // "train.global_batch".
  absl::string_view path;
  // Takes the value over into the specification. kInvalidArgument with a sentence that says what
  // would be right.
  absl::Status (*read)(const YamlNode& value, v1::JobSpec& spec);
};

// All keys, section by section.
absl::Span<const JobKey> JobKeys();

}  // namespace sherd
