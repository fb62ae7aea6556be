#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/yaml_tree.h"

namespace sherd {

// Readers of one value each. kInvalidArgument with a sentence that says what would be right;
// otherwise the value is in the second argument.
absl::Status ReadWhole(const YamlNode& node, int64_t& value);
// "inf" and "nan" are refused.
absl::Status ReadReal(const YamlNode& node, double& value);
absl::Status ReadFlag(const YamlNode& node, bool& value);
absl::Status ReadText(const YamlNode& node, std::string& value);
// "3s", "500ms", "2m"; whole milliseconds, at least one.
absl::Status ReadDurationMs(const YamlNode& node, int64_t& milliseconds);
absl::Status ReadTexts(const YamlNode& node, std::vector<std::string>& values);
absl::Status ReadReals(const YamlNode& node, std::vector<double>& values);

// The value in single quotes, shortened: for sentences.
std::string Quoted(const YamlNode& node);

}  // namespace sherd
