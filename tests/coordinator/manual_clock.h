#pragma once

#include "absl/time/time.h"
#include "common/clock.h"

namespace sherd {

// Stands still until it is moved. One thread.
class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration duration) { now_ += duration; }

 private:
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

}  // namespace sherd
