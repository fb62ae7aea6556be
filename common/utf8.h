#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sherd {

// The offset of the first byte that is not well-formed UTF-8 (RFC 3629), or is a NUL.
std::optional<size_t> FindInvalidUtf8(absl::string_view text);

// `text` with U+FFFD in place of every such byte. Protobuf refuses a whole message for one of them.
std::string MendUtf8(absl::string_view text);

}  // namespace sherd
