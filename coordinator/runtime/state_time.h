#pragma once

#include "absl/time/time.h"
#include "coordinator/core/state.h"

namespace sherd {

// How long it may take to read or to write all training state of the job, by the slowest disk or
// network that is waited for: a second for every whole 16 MiB.
absl::Duration StateTime(const v1::JobSpec& spec);

// Whether the job's epoch begins with something that is read.
bool ReadsState(const JobRecord& job);

// From Assign until every rank of the job's epoch is ready: `formation_time`, and, where it
// reads state, the time to read the state.
absl::Duration ReadyTime(const JobRecord& job, absl::Duration formation_time);

}  // namespace sherd
