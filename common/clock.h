#pragma once

#include "absl/time/time.h"

namespace sherd {

// The only source of time for logic: tests give a manual one. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

}  // namespace sherd
