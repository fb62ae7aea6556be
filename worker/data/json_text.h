#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sherd {

// Why a line is not what it should be.
struct JsonTextError {
  // In the line.
  int64_t byte = 0;
  std::string reason;
};

// Takes the strings of a JSON object's keys `keys` into `texts`, in that order; what else is in it
// is checked for being JSON, and ignored. False, and `error`, for anything but an object that has
// each of the keys once, with a string of valid UTF-8.
bool ReadJsonTexts(absl::string_view line, absl::Span<const absl::string_view> keys,
                   absl::Span<std::string> texts, JsonTextError& error);

}  // namespace sherd
