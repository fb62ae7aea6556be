#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace sherd {

// A rank that needs longer for its work than others for theirs.
struct Straggler {
  int rank = 0;
  // Seconds that it computes for a micro-batch, and the median of the others.
  double seconds = 0;
  double median_seconds = 0;
};

// Finds ranks that stay slower than the others' median: by half, and by more than a blink, for
// twenty steps in a row. Each is told once, and again when it has been as fast as the others
// meanwhile. Pure.
class StragglerWatch {
 public:
  // By rank: how many micro-batches of a step it computes. Ranks without any are not looked at.
  explicit StragglerWatch(std::vector<int64_t> micro_batches);

  // By rank: the seconds that it computed for a step. Who is told of now.
  std::vector<Straggler> Add(absl::Span<const double> busy_seconds);

 private:
  // What the others' median is for `rank`; nothing when there are none.
  static std::optional<double> MedianWithout(int rank, absl::Span<const double> seconds);

  const std::vector<int64_t> micro_batches_;
  // By rank: steps in a row that it was slower; negative after it was told, until it is not.
  std::vector<int> slow_steps_;
};

// A loss far above what it was: how far, in what it usually moves by. Pure.
class LossWatch {
 public:
  // Whether this step's loss is a spike: further above the running mean than ten times the running
  // mean distance from it, after a while of steps without one.
  bool Add(double loss);

 private:
  int steps_ = 0;
  double mean_ = 0;
  double distance_ = 0;
};

}  // namespace sherd
