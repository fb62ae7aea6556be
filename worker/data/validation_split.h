#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace sherd {

// Which windows of a source are held out for validation, when a fraction of it is: a pure function
// of (seed, fraction, window). Windows that are appended later change nothing of those before them,
// and of the first n windows, for every n, n · fraction are held out, less than one more or less.
//
// The fraction is rounded to f / 2^32. The windows are cut into strata, the j-th from
// ceil(j·2^32 / f) up to the start of the next, each of 1 / fraction windows in the mean; of each,
// one is held out, which mix(mix(seed + G) + j·G) chooses (mix and G of common/splitmix.h). Both
// sides' windows are numbered in order, so that either can be shuffled by itself.
class ValidationSplit {
 public:
  // `fraction` from 2^-32 to 0.5, `windows` from 1 to 2^62; kInvalidArgument otherwise, and when
  // one side is left without a window.
  static absl::StatusOr<ValidationSplit> Make(int64_t windows, double fraction, uint64_t seed);

  int64_t training() const { return windows_ - validation_; }
  int64_t validation() const { return validation_; }
  bool IsHeldOut(int64_t window) const { return HeldOut(StratumOf(window)) == window; }
  // The window of the `index`-th of a side, in [0, training()) or [0, validation()).
  int64_t TrainingWindow(int64_t index) const;
  int64_t ValidationWindow(int64_t index) const;

 private:
  ValidationSplit(int64_t windows, uint64_t per_2_32, uint64_t seed)
      : windows_(windows), per_2_32_(per_2_32), seed_(seed) {}

  // The first window of a stratum; which one holds a window; the window of it that is held out.
  int64_t StartOf(int64_t stratum) const;
  int64_t StratumOf(int64_t window) const;
  int64_t HeldOut(int64_t stratum) const;

  int64_t windows_;
  uint64_t per_2_32_;
  uint64_t seed_;
  int64_t validation_ = 0;
};

}  // namespace sherd
