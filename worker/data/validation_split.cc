#include "worker/data/validation_split.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/splitmix.h"

namespace sherd {
namespace {

// Products of two numbers of 64 bits.
using Wide = unsigned __int128;

// The stratum behind the last one starts below 2^63.
constexpr int64_t kMostWindows = int64_t{1} << 62;
constexpr double kOne = 4294967296.0;  // 2^32

}  // namespace

absl::StatusOr<ValidationSplit> ValidationSplit::Make(int64_t windows, double fraction,
                                                      uint64_t seed) {
  // False for what is not a number.
  if (!(fraction >= 1 / kOne && fraction <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a fraction of ", fraction, " cannot be held out; it must be above 0 and at most 0.5"));
  }
  if (windows < 1 || windows > kMostWindows) {
    return absl::InvalidArgumentError(
        absl::StrCat(windows, " windows cannot be split; there must be 1 to ", kMostWindows));
  }
  ValidationSplit split(windows, static_cast<uint64_t>(std::llround(fraction * kOne)), seed);
  // All strata but the last are whole; of that one the window may lie behind the end.
  const int64_t last = split.StratumOf(windows - 1);
  split.validation_ = last + (split.HeldOut(last) < windows ? 1 : 0);
  if (split.validation_ == 0 || split.training() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "of ", windows, " windows a fraction of ", fraction, " leaves ", split.training(),
        " to train on and ", split.validation_, " to validate with; both need at least one"));
  }
  return split;
}

int64_t ValidationSplit::StartOf(int64_t stratum) const {
  const Wide scaled = Wide{static_cast<uint64_t>(stratum)} << 32;
  return static_cast<int64_t>((scaled + per_2_32_ - 1) / per_2_32_);
}

int64_t ValidationSplit::StratumOf(int64_t window) const {
  SHERD_CHECK(window >= 0);
  // The largest j with ceil(j·2^32 / f) <= window.
  return static_cast<int64_t>((Wide{static_cast<uint64_t>(window)} * per_2_32_) >> 32);
}

int64_t ValidationSplit::HeldOut(int64_t stratum) const {
  const int64_t start = StartOf(stratum);
  const auto size = static_cast<uint64_t>(StartOf(stratum + 1) - start);
  const uint64_t bits =
      SplitMix(SplitMix(seed_ + kSplitMixGamma) + static_cast<uint64_t>(stratum) * kSplitMixGamma);
  return start + static_cast<int64_t>((Wide{bits} * size) >> 64);
}

int64_t ValidationSplit::TrainingWindow(int64_t index) const {
  SHERD_CHECK(0 <= index && index < training());
  // Stratum j has StartOf(j) − j training windows before it: find the last one with at most
  // `index`.
  const Wide rest = (Wide{1} << 32) - per_2_32_;
  auto stratum = static_cast<int64_t>(Wide{static_cast<uint64_t>(index)} * per_2_32_ / rest);
  while (StartOf(stratum + 1) - (stratum + 1) <= index) ++stratum;
  while (StartOf(stratum) - stratum > index) --stratum;
  const int64_t window = StartOf(stratum) + (index - (StartOf(stratum) - stratum));
  return window + (window >= HeldOut(stratum) ? 1 : 0);
}

int64_t ValidationSplit::ValidationWindow(int64_t index) const {
  SHERD_CHECK(0 <= index && index < validation_);
  return HeldOut(index);
}

}  // namespace sherd
