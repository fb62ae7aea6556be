#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace sherd {

// Called once, on the event loop's thread, after what it tells of is stored. Dropped without a call
// only when the coordinator stops.
template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

}  // namespace sherd
