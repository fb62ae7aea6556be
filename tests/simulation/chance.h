#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/splitmix.h"

namespace sherd::simulation {

// All that is left to chance in one schedule: a function of its seed.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(SplitMix(seed)) {}

  uint64_t Next() { return SplitMix(state_ += kSplitMixGamma); }
  // 0 … n - 1.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }
  int64_t Between(int64_t least, int64_t most) { return least + Below(most - least + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  absl::Duration Milliseconds(int64_t least, int64_t most) {
    return absl::Microseconds(Between(1000 * least, 1000 * most));
  }

 private:
  uint64_t state_;
};

}  // namespace sherd::simulation
