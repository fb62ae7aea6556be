#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/runtime/coordinator_metrics.h"
#include "tests/simulation/cluster.h"

namespace sherd::simulation {

struct Outcome {
  // What went wrong, as a sentence; nothing when all held.
  std::optional<std::string> wrong;
  // What happened, if it was asked for.
  std::vector<std::string> trace;
  int64_t events = 0;
  int64_t epochs = 0;
  int64_t losses = 0;
  int64_t rollbacks = 0;
  int64_t committed_steps = 0;
  int64_t succeeded = 0;
  int64_t failed = 0;
  int64_t cancelled = 0;
};

// Runs one schedule: a coordinator, workers and jobs, faults of all kinds for a while, and then
// time enough for every job to reach its end. The same options give the same schedule. `metrics`
// only counts; it may be one for all schedules of a thread.
Outcome RunSchedule(const Options& options, CoordinatorMetrics& metrics);

}  // namespace sherd::simulation
