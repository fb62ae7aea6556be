#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace sherd {

struct JsonLimits {
  int64_t depth = 8;
  // Objects, arrays, strings, numbers and so on, all together.
  int64_t values = 1 << 20;
};

// Parses JSON of an untrusted source in memory bounded by the limits and the text's size.
// kInvalidArgument says where and what: bad syntax, a key twice in one object, a limit passed.
absl::StatusOr<nlohmann::json> ParseBoundedJson(absl::string_view text, const JsonLimits& limits);

}  // namespace sherd
