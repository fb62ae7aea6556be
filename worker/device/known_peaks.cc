#include "worker/device/known_peaks.h"

#include "absl/strings/match.h"

namespace sherd {
namespace {

struct Peak {
  absl::string_view model;
  double flops;
};

// A name that is a part of another one stands after it.
constexpr Peak kPeaks[] = {
    {"H200 NVL", 835e12}, {"H200", 989e12}, {"H100 PCIe", 756e12}, {"H100 NVL", 835e12},
    {"H100", 989e12},     {"A100", 312e12}, {"GB200", 2500e12},    {"B200", 2250e12},
};

}  // namespace

double KnownPeakFlops(absl::string_view model) {
  for (const Peak& peak : kPeaks) {
    if (absl::StrContains(model, peak.model)) return peak.flops;
  }
  return 0;
}

}  // namespace sherd
