#include "worker/sample/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/splitmix.h"

namespace sherd {

int64_t TokenSampler::Draw(absl::Span<const float> logits) {
  SHERD_CHECK(!logits.empty());
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    // NaN has no place in an order.
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    candidates_.emplace_back(logit, static_cast<int64_t>(i));
  }
  // Likeliest first, the lower index among equals: an order that no library can change.
  const auto likelier = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  size_t kept = candidates_.size();
  if (temperature_ == 0) kept = 1;
  if (top_k_ > 0) kept = std::min(kept, static_cast<size_t>(top_k_));
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(kept),
                    candidates_.end(), likelier);
  candidates_.resize(kept);

  const uint64_t bits = SplitMix(SplitMix(seed_ + kSplitMixGamma) + ++draws_ * kSplitMixGamma);
  if (kept == 1 || std::isinf(candidates_.front().first)) return candidates_.front().second;
  const double largest = candidates_.front().first;
  const auto weight = [&](const auto& candidate) {
    return std::exp((candidate.first - largest) / temperature_);
  };
  double total = 0;
  for (const auto& candidate : candidates_) total += weight(candidate);
  double left = static_cast<double>(bits >> 11) * 0x1p-53 * total;
  for (const auto& candidate : candidates_) {
    left -= weight(candidate);
    if (left < 0) return candidate.second;
  }
  return candidates_.back().second;
}

}  // namespace sherd
