#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/state.h"

namespace sherd {

// The outcome of looking for workers for one queued job: all of its world, or none and why.
struct GangPlacement {
  // By rank; empty when the job has to wait. Adjacent ranks share a host where possible, and a
  // tensor-parallel group is in one shared-memory domain.
  std::vector<WorkerId> workers;
  Waiting waiting = Waiting::kNone;
  // One sentence that says what is waited for.
  std::string reason;
  // Idle workers that the job would use as soon as busy ones join them; later jobs must leave them
  // alone, or a large job would starve behind small ones. Empty when the job fits nowhere even if
  // every worker were idle: then it holds nobody up.
  std::vector<WorkerId> reserved;
};

// The workers that jobs can be placed on at one moment.
class WorkerPools {
 public:
  // `state` must outlive the pools, its workers unchanged but for their seats.
  explicit WorkerPools(const State& state);

  // Places `job` on idle live workers; those that it gets or reserves are not offered again. All
  // workers of a job are of one kind of device. Its world is as large as idle workers and
  // elastic.max_workers allow, at least elastic.min_workers, and a multiple of parallel.tensor
  // times shard_group. Among places, the one with the largest world wins, then one shared-memory
  // domain before several, then the first by name. In several domains only workers that can be
  // reached from elsewhere take part. Depends on nothing but the pools and the job.
  GangPlacement Place(const JobRecord& job);
  bool AnyIdle() const;

 private:
  // Workers of one kind of device that can share memory.
  struct Domain {
    std::vector<const WorkerState*> idle;
    int64_t live = 0;
    bool reachable = true;  // from other domains
  };
  // The domains over which one job may run.
  using Pool = std::vector<Domain*>;

  // In the order of preference among worlds of one size.
  std::vector<Pool> Pools();
  // How many workers of a pool there are when each domain gives a multiple.
  static int64_t CountIdle(const Pool& pool, int64_t multiple);
  static int64_t CountLive(const Pool& pool, int64_t multiple);
  static std::vector<WorkerId> Take(const Pool& pool, int64_t world, int64_t multiple);

  // By kind of device, then name.
  std::map<std::string, std::map<std::string, Domain>> domains_;
};

}  // namespace sherd
