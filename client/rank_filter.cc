#include "client/rank_filter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/counted.h"

namespace sherd {
namespace {

// The job has had so many ranks at least, by what the event says.
int64_t RanksBy(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kEpoch:
      return event.epoch().world();
    case v1::JobEvent::kDecision:
      return event.decision().world();
    case v1::JobEvent::kLedger:
      return int64_t{event.ledger().rank()} + 1;
    // A line of the coordinator's own, and a warning of no rank, are of rank -1.
    case v1::JobEvent::kLog:
      return int64_t{event.log().rank()} + 1;
    case v1::JobEvent::kWarning:
      return int64_t{event.warning().rank()} + 1;
    default:
      return 0;
  }
}

}  // namespace

absl::Status RankFilter::See(const v1::JobEvent& event) {
  most_ranks_ = std::max(most_ranks_, RanksBy(event));
  if (!rank_ || event.sequence() < last_event_ || most_ranks_ == 0 || *rank_ < most_ranks_) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--rank ", *rank_, " is out of range: the job has had ", Counted(most_ranks_, "rank"),
      " at most; the nearest valid value is ", most_ranks_ - 1));
}

}  // namespace sherd
