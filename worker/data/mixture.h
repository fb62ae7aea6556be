#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/sample_order.h"

namespace sherd {

// One of the sources that are mixed.
struct MixedSource {
  // At least 1.
  int64_t windows = 0;
  // Its part of all samples is weight / sum of the weights. At least 1.
  int64_t weight = 0;
};

// Where a sample comes from.
struct MixedWindow {
  int64_t source = 0;
  int64_t window = 0;

  bool operator==(const MixedWindow&) const = default;
};

// The order in which windows of several sources are visited: a pure function of (seed, sources,
// sample index), as SampleOrder is of one. Of the first n samples, for every n, a source has
// n · weight / sum of weights, less than one more or less. Each visits its own windows in passes,
// every window once a pass, in an order of its own: source s has SampleOrder(windows, seed_s) with
// seed_0 = seed, so that a mixture of one is the plain order, and seed_s = mix(seed + s·G), with
// mix and G of common/splitmix.h, for the others.
//
// With whole weights the sources' order repeats after P = (sum of weights) / (their greatest common
// divisor) samples. Within a period the k-th sample of a source of reduced weight w is due in one
// of the places floor(k·P / w) … ceil((k + 1)·P / w) − 1; each place takes, of the samples that may
// take it, the one whose last place comes first, of equals the source that was named first.
// (Earliest deadline first, which keeps all deadlines where they can be kept: Liu & Layland 1973;
// windows that bound the lag by one: Baruah et al. 1996.)
class Mixture {
 public:
  static constexpr int64_t kLongestPeriod = int64_t{1} << 20;

  // kInvalidArgument for no source, for a number below 1, and for a period above 2^20: smaller
  // numbers in the same proportion would be right.
  static absl::StatusOr<Mixture> Make(const std::vector<MixedSource>& sources, uint64_t seed);

  // The window of global sample `index` >= 0.
  MixedWindow Window(int64_t index) const;
  int64_t period() const { return static_cast<int64_t>(places_.size()); }

 private:
  // A place of the period: whose sample is there, and how many of its own come before.
  struct Place {
    int32_t source;
    int32_t rank;
  };

  Mixture() = default;

  std::vector<SampleOrder> orders_;
  // Samples of each source in a period.
  std::vector<int64_t> weights_;
  std::vector<Place> places_;
};

}  // namespace sherd
