#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

// Readers of a flag's value. kInvalidArgument with one sentence that names the flag and says what
// would be right.

// A whole number, also as "7e9", from `least` to `most`, which are exact as a double.
absl::StatusOr<int64_t> ParseCount(absl::string_view flag, absl::string_view text, int64_t least,
                                   int64_t most);
// A finite number from `least` to `most`.
absl::StatusOr<double> ParseReal(absl::string_view flag, absl::string_view text, double least,
                                 double most);
// "80GiB" in bytes, rounded down: binary units to TiB, decimal ones to TB, at least a byte and at
// most an exbibyte.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view flag, absl::string_view text);
// "true" or "false".
absl::StatusOr<bool> ParseFlag(absl::string_view flag, absl::string_view text);

}  // namespace sherd
