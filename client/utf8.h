#pragma once

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

namespace sherd {

// The offset of the first byte that is not well-formed UTF-8 (RFC 3629), or is a NUL.
std::optional<size_t> FindInvalidUtf8(absl::string_view text);

}  // namespace sherd
