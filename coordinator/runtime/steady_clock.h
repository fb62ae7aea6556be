#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace sherd {

// The time of day when it was made, plus what has passed since: a correction of the system's clock
// cannot end leases. Thread-safe.
class SteadyClock final : public Clock {
 public:
  absl::Time Now() const override {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - steady_start_);
  }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point steady_start_ = std::chrono::steady_clock::now();
};

}  // namespace sherd
