#include "coordinator/core/placement.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/seating.h"
#include "coordinator/core/worker_order.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

// "cuda" of "cuda:3".
absl::string_view DeviceKind(absl::string_view device) {
  return device.substr(0, device.find(':'));
}

// Moves the first `count` workers by host and name from `idle` to the end of `taken`.
void TakeFirst(std::vector<const WorkerState*>& idle, int64_t count, std::vector<WorkerId>& taken) {
  SortByPlace(idle);
  const int64_t taking = std::min(count, static_cast<int64_t>(idle.size()));
  for (int64_t i = 0; i < taking; ++i) taken.push_back(idle[i]->id);
  idle.erase(idle.begin(), idle.begin() + std::max(taking, int64_t{0}));
}

}  // namespace

// What a job asks of a pool.
struct WorkerPools::Demand {
  // `saves`: of an epoch that only saves the job's state, laid out as its last one.
  explicit Demand(const JobRecord& job, bool saves = false);

  // Worlds are multiples of it: the ranks of a tensor-parallel or of a shard group.
  int64_t granule = 1;
  // So many adjacent ranks are in one shared-memory domain.
  int64_t tensor = 1;
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();

  // The largest world that `available` workers allow; 0 when they are too few.
  int64_t World(int64_t available) const {
    const int64_t world = std::min(available, most) / granule * granule;
    return world >= least ? world : 0;
  }
  // "2 idle workers", as the end of a sentence.
  std::string Needs() const;
};

WorkerPools::Demand::Demand(const JobRecord& job, bool saves) {
  const v1::JobSpec& spec = job.spec;
  // What a measurement is laid out as holds in its own epoch alone.
  const v1::ParallelSpec& parallel = IsUndecided(job) ? job.trials.asked : spec.parallel();
  tensor = TensorDegreeOf(parallel);
  // Of strategy auto the shard group is chosen for the world.
  const bool chosen = job.trials.phase != Trials::Phase::kNone;
  granule = chosen && !saves ? tensor : WorldGranuleOf(parallel);
  least = std::max({int64_t{1}, spec.elastic().min_workers(), granule});
  least = (least + granule - 1) / granule * granule;
  if (spec.elastic().max_workers() > 0) most = spec.elastic().max_workers();
  // A world of another size lists and tries its candidates anew: workers that come and go must not
  // have it do so for ever. It grows when the layout is decided.
  if (job.trials.phase == Trials::Phase::kTrial) most = std::min(most, job.trials.world);
}

std::string WorkerPools::Demand::Needs() const {
  return absl::StrCat(
      least, least == 1 ? " idle worker" : " idle workers",
      granule > 1 ? absl::StrCat(" (a multiple of ", granule, ": tensor times shard_group)") : "",
      tensor > 1 ? absl::StrCat(", every tensor group of ", tensor, " in one shared-memory domain")
                 : "");
}

WorkerPools::WorkerPools(const State& state) : state_(state) {
  for (const auto& [id, worker] : state.workers) {
    if (!worker.alive) continue;
    Domain& domain = DomainOf(domains_, worker);
    domain.reachable = domain.reachable && !worker.network_address.empty();
    if (!worker.draining) ++domain.live;
    if (worker.seat) continue;
    (worker.draining ? domain.leaving : domain.idle).push_back(&worker);
  }
}

WorkerPools::Domain& WorkerPools::DomainOf(Domains& domains, const WorkerState& worker) {
  return domains[std::string(DeviceKind(worker.device))][MemoryDomainOf(worker)];
}

std::vector<WorkerPools::Pool> WorkerPools::PoolsOf(Domains& all) {
  std::vector<Pool> pools;
  for (auto& [kind, domains] : all) {
    Pool across;
    for (auto& [name, domain] : domains) {
      pools.push_back({&domain});
      if (domain.reachable) across.push_back(&domain);
    }
    if (across.size() > 1) {
      // Few domains are better than many.
      std::stable_sort(across.begin(), across.end(), [](const Domain* a, const Domain* b) {
        return a->idle.size() > b->idle.size();
      });
      pools.push_back(std::move(across));
    }
  }
  // One domain alone goes before several, which are slower.
  std::stable_sort(pools.begin(), pools.end(),
                   [](const Pool& a, const Pool& b) { return (a.size() == 1) > (b.size() == 1); });
  return pools;
}

bool WorkerPools::AnyIdle() const {
  return std::any_of(domains_.begin(), domains_.end(), [](const auto& kind) {
    return std::any_of(kind.second.begin(), kind.second.end(),
                       [](const auto& entry) { return !entry.second.idle.empty(); });
  });
}

int64_t WorkerPools::CountIdle(const Pool& pool, int64_t multiple) {
  int64_t count = 0;
  for (const Domain* domain : pool) {
    count += static_cast<int64_t>(domain->idle.size()) / multiple * multiple;
  }
  return count;
}

int64_t WorkerPools::CountLive(const Pool& pool, int64_t multiple) {
  int64_t count = 0;
  for (const Domain* domain : pool) count += domain->live / multiple * multiple;
  return count;
}

std::vector<WorkerId> WorkerPools::Take(const Pool& pool, int64_t world, int64_t multiple) {
  std::vector<WorkerId> taken;
  for (Domain* domain : pool) {
    const int64_t offered = static_cast<int64_t>(domain->idle.size()) / multiple * multiple;
    const int64_t wanted = world - static_cast<int64_t>(taken.size());
    TakeFirst(domain->idle, std::min(offered, wanted), taken);
  }
  return taken;
}

int64_t WorkerPools::UnitOf(const Demand& demand, const Pool& pool, int64_t world) {
  // Whole shard groups in one domain where that costs nothing.
  return CountIdle(pool, demand.granule) >= world ? demand.granule : demand.tensor;
}

GangPlacement WorkerPools::Place(const JobRecord& job) {
  const Demand demand(job);
  const std::vector<Pool> pools = PoolsOf(domains_);
  const Pool* best = nullptr;  // the largest world now
  int64_t world = 0;
  for (const Pool& pool : pools) {
    const int64_t possible = demand.World(CountIdle(pool, demand.tensor));
    if (possible <= world) continue;
    best = &pool;
    world = possible;
  }
  GangPlacement placement;
  if (best == nullptr) {
    placement = Unplaced(demand, pools);
    Withhold(placement.reserved);
  } else {
    placement.workers = Take(*best, world, UnitOf(demand, *best, world));
  }
  return placement;
}

GangPlacement WorkerPools::PlaceAgain(const JobRecord& job, const NextWorld& next) {
  Domains sound = Usable(next.leaving, job.excluded, next.domains);
  GangPlacement placement = Regang(job, next, sound);
  if (placement.workers.empty() && !job.excluded.empty()) {
    Domains all = Usable(next.leaving, {}, next.domains);
    placement = Regang(job, next, all);
  }
  Withhold(placement.workers);
  return placement;
}

GangPlacement WorkerPools::Regang(const JobRecord& job, const NextWorld& next,
                                  Domains& usable) const {
  Demand demand(job, next.below_minimum);
  demand.most = std::min(demand.most, next.most);
  if (next.below_minimum) demand.least = demand.granule;
  std::set<const WorkerState*> last;
  for (const RankState& rank : job.ranks) {
    if (IsAlive(state_, rank.worker, rank.incarnation))
      last.insert(FindWorker(state_, rank.worker));
  }
  const std::vector<Pool> pools = PoolsOf(usable);
  const Pool* best = nullptr;
  std::pair<int64_t, int64_t> merit;  // world, survivors
  for (const Pool& pool : pools) {
    const int64_t world = demand.World(CountIdle(pool, demand.tensor));
    int64_t survivors = 0;
    for (const Domain* domain : pool) {
      survivors += std::count_if(domain->idle.begin(), domain->idle.end(),
                                 [&](const WorkerState* worker) { return last.contains(worker); });
    }
    if (world == 0 || std::pair(world, survivors) <= merit) continue;
    best = &pool;
    merit = {world, survivors};
  }
  if (best == nullptr) return Unplaced(demand, pools);
  std::vector<const IdleDomain*> domains;
  for (const Domain* domain : *best) domains.push_back(&domain->idle);
  GangPlacement placement;
  placement.workers =
      SeatAgain(job.ranks, domains, merit.first, UnitOf(demand, *best, merit.first));
  return placement;
}

WorkerPools::Domains WorkerPools::Usable(
    Leaving leaving, const std::set<WorkerId>& excluded,
    const std::optional<std::set<std::string>>& domains) const {
  Domains usable;
  const auto add = [&](const std::vector<const WorkerState*>& from, Domain& to) {
    for (const WorkerState* worker : from) {
      if (excluded.contains(worker->id)) {
        --to.live;
      } else {
        to.idle.push_back(worker);
      }
    }
  };
  for (const auto& [kind, all] : domains_) {
    for (const auto& [name, domain] : all) {
      Domain& copy = usable[kind][name];
      copy.reachable = domain.reachable;
      copy.live = domain.live;
      if (!domains || domains->contains(name)) {
        add(domain.idle, copy);
        if (leaving == Leaving::kTakenIn) add(domain.leaving, copy);
      } else {
        copy.live -= static_cast<int64_t>(domain.idle.size());
      }
    }
  }
  return usable;
}

GangPlacement WorkerPools::Unplaced(const Demand& demand, const std::vector<Pool>& pools) {
  const Pool* promised = nullptr;  // would do if its busy workers were idle
  int64_t live = 0;
  for (const Pool& pool : pools) {
    if (pool.size() == 1) live += pool.front()->live;
    if (demand.World(CountLive(pool, demand.tensor)) > 0 &&
        (promised == nullptr || CountIdle(pool, 1) > CountIdle(*promised, 1))) {
      promised = &pool;
    }
  }
  GangPlacement placement;
  if (promised == nullptr) {
    placement.waiting = Waiting::kWorkers;
    placement.reason = absl::StrCat("waits for workers to arrive: it needs ", demand.Needs(), ", ",
                                    live, " connected");
    return placement;
  }
  placement.waiting = Waiting::kIdleWorkers;
  placement.reason = absl::StrCat("waits for busy workers: it needs ", demand.Needs(), ", ",
                                  CountIdle(*promised, 1), " of ", CountLive(*promised, 1),
                                  " idle and not spoken for");
  for (Domain* domain : *promised) {
    for (const WorkerState* worker : domain->idle) placement.reserved.push_back(worker->id);
  }
  return placement;
}

void WorkerPools::Reserve(const JobRecord& job, int64_t most) {
  int64_t spares = std::min(Demand(job).most, most);
  std::vector<WorkerId> kept;
  std::set<std::string> kinds;
  for (const RankState& rank : job.ranks) {
    if (!IsAlive(state_, rank.worker, rank.incarnation)) continue;
    --spares;
    kept.push_back(rank.worker);
    kinds.insert(std::string(DeviceKind(FindWorker(state_, rank.worker)->device)));
  }
  Withhold(kept);
  for (auto& [kind, domains] : domains_) {
    if (!kinds.empty() && !kinds.contains(kind)) continue;
    for (auto& [name, domain] : domains) {
      kept.clear();
      TakeFirst(domain.idle, spares, kept);
      spares -= static_cast<int64_t>(kept.size());
    }
  }
}

int64_t WorkerPools::LargestWorld(const JobRecord& job) const {
  const Demand demand(job);
  std::set<std::string> kinds;
  std::optional<std::set<std::string>> hidden;
  for (const RankState& rank : job.ranks) {
    const WorkerState* worker = FindWorker(state_, rank.worker);
    if (worker == nullptr) continue;
    kinds.insert(std::string(DeviceKind(worker->device)));
    if (!worker->network_address.empty()) continue;
    if (!hidden) hidden.emplace();
    hidden->insert(MemoryDomainOf(*worker));
  }
  // Nobody comes to several of them.
  if (hidden && hidden->size() > 1) hidden->clear();
  Domains usable = Usable(Leaving::kLeftOut, job.excluded, hidden);
  std::erase_if(usable, [&](const auto& entry) { return !kinds.contains(entry.first); });
  for (const RankState& rank : job.ranks) {
    const WorkerState* worker = FindWorker(state_, rank.worker);
    if (worker == nullptr || worker->incarnation != rank.incarnation) continue;
    if (!worker->alive || worker->draining || !worker->seat) continue;
    DomainOf(usable, *worker).idle.push_back(worker);
  }
  int64_t largest = 0;
  for (const Pool& pool : PoolsOf(usable)) {
    largest = std::max(largest, demand.World(CountIdle(pool, demand.tensor)));
  }
  return largest;
}

void WorkerPools::Withhold(const std::vector<WorkerId>& workers) {
  if (workers.empty()) return;
  const std::set<WorkerId> withheld(workers.begin(), workers.end());
  const auto is_withheld = [&](const WorkerState* worker) { return withheld.contains(worker->id); };
  for (auto& [kind, domains] : domains_) {
    for (auto& [name, domain] : domains) {
      std::erase_if(domain.idle, is_withheld);
      std::erase_if(domain.leaving, is_withheld);
    }
  }
}

}  // namespace sherd
