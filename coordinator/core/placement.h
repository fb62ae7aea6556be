#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/state.h"

namespace sherd {

// The outcome of looking for workers for one queued job: all of its world, or none and why.
struct GangPlacement {
  // By rank; empty when the job has to wait. Adjacent ranks share a host where possible, so a
  // tensor-parallel group is in one shared-memory domain.
  std::vector<WorkerId> workers;
  Waiting waiting = Waiting::kNone;
  // One sentence that says what is waited for.
  std::string reason;
  // Idle workers that the job would use as soon as busy ones join them; later jobs must leave them
  // alone, or a large job would starve behind small ones. Empty when the job fits nowhere even if
  // every worker were idle: then it holds nobody up.
  std::set<WorkerId> reserved;
};

// Places `job` on idle live workers that are not in `taken`. All workers of a job are of one kind
// of device and in one shared-memory domain, since ranks exchange data over shared memory. Its
// world is as large as idle workers and elastic.max_workers allow, at least elastic.min_workers,
// and a multiple of parallel.tensor. Among places, the one with the largest world wins, then the
// first by name. A pure function of its arguments.
GangPlacement PlaceJob(const State& state, const JobRecord& job, const std::set<WorkerId>& taken);

}  // namespace sherd
