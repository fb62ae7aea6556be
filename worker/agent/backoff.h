#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace sherd {

// Delays between attempts: doubling from `first` to `longest`, each cut by a random share of up to
// a fifth so that workers which lost one coordinator do not come back at one instant. Not
// thread-safe.
class Backoff {
 public:
  Backoff(absl::Duration first, absl::Duration longest, uint64_t seed)
      : first_(first), longest_(longest), next_(first), random_(seed) {}

  absl::Duration Next();
  // The attempt succeeded.
  void Reset() { next_ = first_; }

 private:
  absl::Duration first_;
  absl::Duration longest_;
  absl::Duration next_;
  std::mt19937_64 random_;
};

}  // namespace sherd
