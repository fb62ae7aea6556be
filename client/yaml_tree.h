#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

// One value of a YAML document and where it stands.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  // Of a scalar.
  std::string text;
  bool quoted = false;
  // Counts from 1.
  int line = 1;
  // Of a sequence or mapping, in order.
  std::vector<YamlNode> children;
  // Of a mapping's child.
  std::string key;
  int key_line = 1;
};

// What is wrong with a text, at a line that counts from 1.
struct YamlError {
  int line = 1;
  std::string message;
};

// Parses one document of at most 1 MiB. What a job file has no use for and a hostile one could
// abuse is refused: anchors, aliases, tags, deep nesting, duplicate keys, bytes that are not UTF-8.
// Returns whether `text` was valid; else fills `error`.
bool ParseYaml(absl::string_view text, YamlNode& root, YamlError& error);

}  // namespace sherd
