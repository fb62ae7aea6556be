#pragma once

#include "absl/status/status.h"
#include "client/yaml_tree.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Reads the value of data.train: paths, each alone or as {path: PATH, weight: NUMBER}; either all
// have a weight or none. kInvalidArgument with a sentence that says what would be right.
absl::Status ReadTrainEntries(const YamlNode& node, v1::DataSpec& data);

}  // namespace sherd
