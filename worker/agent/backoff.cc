#include "worker/agent/backoff.h"

#include <algorithm>

namespace sherd {

absl::Duration Backoff::Next() {
  const absl::Duration delay = std::min(next_, longest_);
  next_ = std::min(next_ * 2, longest_);
  return delay * std::uniform_real_distribution<double>(0.8, 1.0)(random_);
}

}  // namespace sherd
