#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/state.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

struct HangVerdict {
  // -1: nobody can be told.
  int rank = -1;
  // Names rank, worker, step and operation (F34).
  std::string sentence;
};

// Who is to blame that a job has completed no step for `stalled`, by what its ranks said of where
// they are: one that does not wait for others; else one that said nothing; else the one that most
// of the others miss. Texts of `positions` are printable.
HangVerdict JudgeHang(const JobRecord& job, const std::map<int, v1::RankPosition>& positions,
                      absl::Duration stalled);

}  // namespace sherd
