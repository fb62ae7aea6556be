#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace sherd {

// Why a line is not what it should be.
struct JsonTextError {
  // In the line.
  int64_t byte = 0;
  std::string reason;
};

// Takes the text of a JSON object, the value of its key "text"; what else is in it is checked for
// being JSON, and ignored. False, and `error`, for anything but an object with one such key and a
// string of valid UTF-8.
bool ReadJsonText(absl::string_view line, std::string& text, JsonTextError& error);

}  // namespace sherd
