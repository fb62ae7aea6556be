#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace sherd {

// Draws tokens from logits; the n-th draw is a pure function of (seed, n, logits).
class TokenSampler {
 public:
  // temperature >= 0; 0 takes the largest logit, the first among equals. top_k >= 0; 0 keeps all.
  TokenSampler(double temperature, int64_t top_k, uint64_t seed)
      : temperature_(temperature), top_k_(top_k), seed_(seed) {}

  // An index of `logits`, which is not empty.
  int64_t Draw(absl::Span<const float> logits);

 private:
  const double temperature_;
  const int64_t top_k_;
  const uint64_t seed_;
  uint64_t draws_ = 0;
  std::vector<std::pair<float, int64_t>> candidates_;
};

}  // namespace sherd
