#include "coordinator/core/placement.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "plan/world_layout.h"

namespace sherd {
namespace {

// "cuda" of "cuda:3".
absl::string_view DeviceKind(absl::string_view device) {
  return device.substr(0, device.find(':'));
}

// Orders "cpu:9" before "cpu:10": by length of digit runs first, then by text.
std::string NaturalKey(absl::string_view text) {
  std::string key;
  for (size_t i = 0; i < text.size();) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      key += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    // A run's length sorts before its digits; runs are bounded by the length of an id.
    key += static_cast<char>('0' + std::min<size_t>(end - i, 70));
    absl::StrAppend(&key, text.substr(i, end - i));
    i = end;
  }
  return key;
}

// What a job asks of a pool.
struct Demand {
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
};

Demand DemandOf(const v1::JobSpec& spec) {
  Demand demand;
  demand.tensor = TensorDegreeOf(spec.parallel());
  demand.granule = WorldGranuleOf(spec.parallel());
  demand.least = std::max({int64_t{1}, spec.elastic().min_workers(), demand.granule});
  demand.least = (demand.least + demand.granule - 1) / demand.granule * demand.granule;
  if (spec.elastic().max_workers() > 0) demand.most = spec.elastic().max_workers();
  return demand;
}

// Moves the first `count` workers by host and name from `idle` to the end of `taken`.
void TakeFirst(std::vector<const WorkerState*>& idle, int64_t count, std::vector<WorkerId>& taken) {
  using Place = std::tuple<std::string, std::string, const WorkerState*>;
  std::vector<Place> ordered;
  ordered.reserve(idle.size());
  for (const WorkerState* worker : idle) {
    ordered.emplace_back(worker->host, NaturalKey(worker->id.value()), worker);
  }
  std::sort(ordered.begin(), ordered.end(), [](const Place& a, const Place& b) {
    return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a)->id) <
           std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b)->id);
  });
  idle.clear();
  for (const Place& place : ordered) {
    const WorkerState* worker = std::get<2>(place);
    if (count-- > 0) {
      taken.push_back(worker->id);
    } else {
      idle.push_back(worker);
    }
  }
}

std::string Needs(const Demand& demand) {
  return absl::StrCat(
      demand.least, demand.least == 1 ? " idle worker" : " idle workers",
      demand.granule > 1
          ? absl::StrCat(" (a multiple of ", demand.granule, ": tensor times shard_group)")
          : "",
      demand.tensor > 1
          ? absl::StrCat(", every tensor group of ", demand.tensor, " in one shared-memory domain")
          : "");
}

}  // namespace

WorkerPools::WorkerPools(const State& state) {
  for (const auto& [id, worker] : state.workers) {
    if (!worker.alive) continue;
    // Who names no domain shares memory with nobody.
    const std::string name = worker.shared_memory_domain.empty() ? absl::StrCat("of ", id.value())
                                                                 : worker.shared_memory_domain;
    Domain& domain = domains_[std::string(DeviceKind(worker.device))][name];
    ++domain.live;
    domain.reachable = domain.reachable && !worker.network_address.empty();
    if (!worker.seat) domain.idle.push_back(&worker);
  }
}

std::vector<WorkerPools::Pool> WorkerPools::Pools() {
  std::vector<Pool> pools;
  for (auto& [kind, domains] : domains_) {
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

GangPlacement WorkerPools::Place(const JobRecord& job) {
  const Demand demand = DemandOf(job.spec);
  const std::vector<Pool> pools = Pools();
  const Pool* best = nullptr;      // the largest world now
  const Pool* promised = nullptr;  // would do if its busy workers were idle
  int64_t world = 0;
  int64_t live = 0;
  for (const Pool& pool : pools) {
    if (pool.size() == 1) live += pool.front()->live;
    if (const int64_t possible = demand.World(CountIdle(pool, demand.tensor)); possible > world) {
      best = &pool;
      world = possible;
    }
    if (demand.World(CountLive(pool, demand.tensor)) > 0 &&
        (promised == nullptr || CountIdle(pool, 1) > CountIdle(*promised, 1))) {
      promised = &pool;
    }
  }
  GangPlacement placement;
  if (best != nullptr) {
    // Whole shard groups in one domain where that costs nothing.
    const bool whole = CountIdle(*best, demand.granule) >= world;
    placement.workers = Take(*best, world, whole ? demand.granule : demand.tensor);
    return placement;
  }
  if (promised == nullptr) {
    placement.waiting = Waiting::kWorkers;
    placement.reason = absl::StrCat("waits for workers to arrive: it needs ", Needs(demand), ", ",
                                    live, " connected");
    return placement;
  }
  placement.waiting = Waiting::kIdleWorkers;
  placement.reason = absl::StrCat("waits for busy workers: it needs ", Needs(demand), ", ",
                                  CountIdle(*promised, 1), " of ", CountLive(*promised, 1),
                                  " idle and not spoken for");
  for (Domain* domain : *promised) {
    for (const WorkerState* worker : domain->idle) placement.reserved.push_back(worker->id);
    domain->idle.clear();
  }
  return placement;
}

}  // namespace sherd
