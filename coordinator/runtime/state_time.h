#pragma once

#include "absl/time/time.h"
#include "coordinator/core/state.h"

namespace sherd {

// How long it may take to read or to write all training state of the job, by the slowest disk or
// network that is waited for: a second for every whole 16 MiB.
absl::Duration StateTime(const v1::JobSpec& spec);

// From Assign until every rank of the job's epoch is ready: `formation_time`, and, where it does
// not begin with nothing, the time to read the state.
absl::Duration ReadyTime(const JobRecord& job, absl::Duration formation_time);

}  // namespace sherd
