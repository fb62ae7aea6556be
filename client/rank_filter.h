#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// Which lines of a job's feed `sherd logs --rank R` shows, and whether the job has such a rank.
class RankFilter {
 public:
  // `rank`: nothing shows all. `last_event`: the feed's end when the job was asked about.
  RankFilter(std::optional<int> rank, int64_t last_event) : rank_(rank), last_event_(last_event) {}

  // kInvalidArgument, with the ranks that there are, once the feed of then has passed and none of
  // its epochs had the rank. A job that has not formed a world yet may still have it.
  absl::Status See(const v1::JobEvent& event);
  bool Shows(const v1::LogLine& line) const { return !rank_ || line.rank() == *rank_; }

 private:
  const std::optional<int> rank_;
  const int64_t last_event_;
  int64_t largest_world_ = 0;
};

}  // namespace sherd
