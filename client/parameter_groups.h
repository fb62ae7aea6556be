#pragma once

#include "absl/status/status.h"
#include "client/yaml_tree.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Reads train.optimizer.groups: a list of mappings of a pattern and settings. kInvalidArgument with
// the group's number and a sentence that says what would be right.
absl::Status ReadParameterGroups(const YamlNode& node,
                                 google::protobuf::RepeatedPtrField<v1::ParameterGroup>& groups);

}  // namespace sherd
