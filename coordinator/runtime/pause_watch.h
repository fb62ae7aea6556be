#pragma once

#include <utility>

#include "absl/time/time.h"

namespace sherd {

// Tells when this process did not run for a while: nothing could be heard then, so nobody's time
// may end for it. Of short pauses, and of those that follow each other soon, an interval each
// counts, or nobody would ever be late for a process that always is. Knows no clock; one thread.
class PauseWatch {
 public:
  // Turns come at least every `interval` when nothing is amiss. After `calm` without a pause the
  // next one of more than three intervals is excused in full; the first one always is.
  PauseWatch(absl::Duration interval, absl::Duration calm)
      : interval_(interval), calm_(calm), prompt_(calm) {}

  // Call at the beginning of each turn: how much of the time since the last call does not count.
  absl::Duration Excused(absl::Time now) {
    const absl::Duration gap = now - std::exchange(last_, now);
    if (gap == absl::InfiniteDuration()) return absl::ZeroDuration();
    if (gap <= 3 * interval_) {
      prompt_ += gap;
      return 2 * gap > 3 * interval_ ? gap - interval_ : absl::ZeroDuration();
    }
    const bool alone = std::exchange(prompt_, absl::ZeroDuration()) >= calm_;
    return alone ? gap : gap - interval_;
  }

 private:
  const absl::Duration interval_, calm_;
  absl::Duration prompt_;  // turns came in time for so long
  absl::Time last_ = absl::InfinitePast();
};

}  // namespace sherd
