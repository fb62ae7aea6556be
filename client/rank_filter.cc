#include "client/rank_filter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/counted.h"

namespace sherd {

absl::Status RankFilter::See(const v1::JobEvent& event) {
  if (event.has_epoch()) {
    largest_world_ = std::max<int64_t>(largest_world_, event.epoch().world());
  }
  if (!rank_ || event.sequence() < last_event_ || largest_world_ == 0 || *rank_ < largest_world_) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--rank ", *rank_, " is out of range: the job has had ", Counted(largest_world_, "rank"),
      " at most; the nearest valid value is ", largest_world_ - 1));
}

}  // namespace sherd
