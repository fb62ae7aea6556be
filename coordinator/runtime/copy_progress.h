#pragma once

#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "coordinator/runtime/rank_looks.h"

namespace sherd {

// Slower copies than this are no progress.
inline constexpr int64_t kSlowestCopyBytesPerSecond = int64_t{1} << 20;

// Whether ranks copy or restore what takes its time, by the bytes that they have counted; judged
// now and then while nothing else is heard of an epoch. What an epoch copies between two of its
// steps is finite, and so is the time for which this says yes; a trickle is progress once.
class CopyProgress {
 public:
  // `second` is of `now`, `first` of a moment before. The first time: a rank has moved anything in
  // between. Later: a rank has moved kSlowestCopyBytesPerSecond since the last time.
  bool Judge(const Positions& first, const Positions& second, absl::Time now);

 private:
  // By rank, at the last time.
  std::map<int, int64_t> bytes_;
  absl::Time judged_ = absl::InfinitePast();
};

}  // namespace sherd
