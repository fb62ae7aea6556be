#pragma once

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace sherd {

// A moment on the monotonic clock: a wait must not end early because the wall clock was set.
class Deadline {
 public:
  explicit Deadline(absl::Duration from_now)
      : end_(std::chrono::steady_clock::now() +
             absl::ToChronoNanoseconds(std::min(from_now, absl::Hours(24 * 365)))) {}

  // Never negative.
  absl::Duration left() const {
    return std::max(absl::ZeroDuration(),
                    absl::FromChrono(end_ - std::chrono::steady_clock::now()));
  }
  bool passed() const { return left() == absl::ZeroDuration(); }

 private:
  std::chrono::steady_clock::time_point end_;
};

}  // namespace sherd
