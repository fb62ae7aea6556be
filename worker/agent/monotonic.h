#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace sherd {

// Time since some fixed moment; unlike the wall clock it never jumps.
inline absl::Duration MonotonicNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace sherd
