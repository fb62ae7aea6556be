#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sherd {

// UTF-8 text of another process as one line that does nothing to a terminal: control characters
// are spelled out ("\n", "\x1b"), one newline at the end is left out, and what would make the
// result longer than `most_bytes` (at least 64) is cut with a mark that says how much.
std::string PrintableText(absl::string_view text, size_t most_bytes);

}  // namespace sherd
