#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace sherd {

// Goes along with long copies: hears of every piece of at most kWatchedBytes that has been moved or
// looked at, and ends the copy by an error. Called from the threads that copy; an empty one hears
// of nothing.
using CopyWatch = std::function<absl::Status(int64_t bytes)>;
inline constexpr int64_t kWatchedBytes = int64_t{4} << 20;

}  // namespace sherd
