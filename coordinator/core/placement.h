#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/state.h"

namespace sherd {

// The outcome of looking for workers for one queued job: all of its world, or none and why.
struct GangPlacement {
  // By rank; empty when the job has to wait. Adjacent ranks share a host where possible, and a
  // tensor-parallel group is in one shared-memory domain.
  std::vector<WorkerId> workers = {};
  Waiting waiting = Waiting::kNone;
  // One sentence that says what is waited for.
  std::string reason;
  // Idle workers that the job would use as soon as busy ones join them; later jobs must leave them
  // alone, or a large job would starve behind small ones. Empty when the job fits nowhere even if
  // every worker were idle: then it holds nobody up.
  std::vector<WorkerId> reserved = {};
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

  // Whether workers that are about to leave count, too.
  enum class Leaving { kLeftOut, kTakenIn };
  // What the next epoch of a job is to be.
  struct NextWorld {
    // Ranks.
    int64_t most = 0;
    Leaving leaving = Leaving::kLeftOut;
    // It may be smaller than elastic.min_workers.
    bool below_minimum = false;
    // Workers of these domains (MemoryDomainOf) alone take part in it; absent: of any.
    std::optional<std::set<std::string>> domains = {};
  };
  // Places the next epoch of a job whose last one has ended, by the same rules. Among places of one
  // size, the one where most of the last epoch's workers are wins. In
  // a world as large as the last one they keep their ranks, and others take the places of those
  // that are gone; else they stay in the order of their ranks. Tensor groups stay together. Workers
  // that the job excludes take part only if there is no world without them. What it would reserve
  // is still offered.
  GangPlacement PlaceAgain(const JobRecord& job, const NextWorld& next);
  // Keeps what a job whose epoch is ending would use, up to `most` workers, from those placed after
  // it: of its last epoch those that are idle already, and others in place of the lost.
  void Reserve(const JobRecord& job, int64_t most);
  // The largest world that the job could have if it gave up its workers and was placed again, on
  // workers of the same kind that can read from them.
  int64_t LargestWorld(const JobRecord& job) const;
  // These are not offered again.
  void Withhold(const std::vector<WorkerId>& workers);
  bool AnyIdle() const;

 private:
  // Workers of one kind of device that can share memory.
  struct Domain {
    std::vector<const WorkerState*> idle;
    // Idle, and about to leave.
    std::vector<const WorkerState*> leaving;
    // Without those.
    int64_t live = 0;
    bool reachable = true;  // from other domains
  };
  // The domains over which one job may run.
  using Pool = std::vector<Domain*>;

  // What a job asks of a pool.
  struct Demand;
  // By kind of device, then name.
  using Domains = std::map<std::string, std::map<std::string, Domain>>;

  // In the order of preference among worlds of one size.
  static std::vector<Pool> PoolsOf(Domains& domains);
  // How many workers of a pool there are when each domain gives a multiple.
  static int64_t CountIdle(const Pool& pool, int64_t multiple);
  static int64_t CountLive(const Pool& pool, int64_t multiple);
  static std::vector<WorkerId> Take(const Pool& pool, int64_t world, int64_t multiple);
  // So many adjacent ranks of a world are put in one domain.
  static int64_t UnitOf(const Demand& demand, const Pool& pool, int64_t world);
  static Domain& DomainOf(Domains& domains, const WorkerState& worker);
  // The domains without those idle workers that are excluded or in none of `domains`.
  Domains Usable(Leaving leaving, const std::set<WorkerId>& excluded,
                 const std::optional<std::set<std::string>>& domains) const;
  GangPlacement Regang(const JobRecord& job, const NextWorld& next, Domains& usable) const;
  // Why no pool has a world for the demand.
  static GangPlacement Unplaced(const Demand& demand, const std::vector<Pool>& pools);

  const State& state_;
  Domains domains_;
};

}  // namespace sherd
