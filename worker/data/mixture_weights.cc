#include "worker/data/mixture_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "worker/data/mixture.h"

namespace sherd {
namespace {

constexpr double kMostScale = 1e6;
// What is left of a decimal fraction as a double when it is scaled.
constexpr double kRounding = 1e-9;
constexpr double kLargestWhole = 9007199254740992.0;  // 2^53
constexpr double kParts = 524288.0;                   // 2^19

bool AreWhole(absl::Span<const double> weights, double scale) {
  return std::all_of(weights.begin(), weights.end(), [&](double weight) {
    const double scaled = weight * scale;
    return scaled <= kLargestWhole && std::round(scaled) >= 1 &&
           std::abs(scaled - std::round(scaled)) <= kRounding * scaled;
  });
}

// In the lowest terms; empty when their order repeats too late.
std::vector<int64_t> Reduced(absl::Span<const double> weights, double scale) {
  std::vector<int64_t> whole;
  int64_t divisor = 0;
  for (const double weight : weights) {
    whole.push_back(std::llround(weight * scale));
    divisor = std::gcd(divisor, whole.back());
  }
  int64_t period = 0;
  for (int64_t& weight : whole) {
    weight /= divisor;
    if (weight > Mixture::kLongestPeriod - period) return {};
    period += weight;
  }
  return whole;
}

}  // namespace

std::vector<int64_t> WholeWeights(absl::Span<const double> weights) {
  for (double scale = 1; scale <= kMostScale; scale *= 10) {
    if (!AreWhole(weights, scale)) continue;
    std::vector<int64_t> exact = Reduced(weights, scale);
    if (!exact.empty()) return exact;
    break;
  }
  // Scaled first: the sum of the largest numbers is none.
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  std::vector<int64_t> rounded;
  for (const double weight : weights) {
    rounded.push_back(std::max<int64_t>(1, std::llround(weight / largest / sum * kParts)));
  }
  return rounded;
}

}  // namespace sherd
