#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "coordinator/core/state.h"
#include "coordinator/runtime/job_feed.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// What a rank may say, given what is known of it. `job` runs, `rank` is the sender's of its current
// epoch, `progress` the job's. kInvalidArgument, as the end of a sentence, for what no rank in
// order says: its worker can no more be trusted to take part, so the caller ends the rank. (To drop
// such a report alone would leave a job that waits for what its rank believes it has said.)
absl::Status CheckReport(const JobRecord& job, const RankState& rank, const Progress& progress,
                         const v1::RankReport& report);

// The same of a report's number: reports of one stream are numbered without a gap after the first
// one, whose predecessors may have been acknowledged by a coordinator whose log has lost them.
absl::Status CheckSequence(uint64_t sequence, uint64_t acknowledged, bool first_of_stream);

}  // namespace sherd
