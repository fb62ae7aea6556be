#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace sherd {

// Calls work(0) … work(count − 1) on at most `threads` >= 1 threads, each once, and returns when
// all that was begun has ended. The first error in the order of time ends it: nothing is begun
// after it.
absl::Status ParallelFor(size_t count, int threads, absl::FunctionRef<absl::Status(size_t)> work);

}  // namespace sherd
