#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace sherd {

// Anonymous memory of this process that is resident, in bytes, as the operating system counts it:
// heap, stacks and private mappings, not files and not shared segments. kUnavailable where the
// system does not tell.
absl::StatusOr<int64_t> AnonymousBytes();

}  // namespace sherd
