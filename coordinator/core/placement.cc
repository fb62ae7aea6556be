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
  demand.granule = WorldGranuleOf(spec.parallel());
  demand.least = std::max({int64_t{1}, spec.elastic().min_workers(), demand.granule});
  demand.least = (demand.least + demand.granule - 1) / demand.granule * demand.granule;
  if (spec.elastic().max_workers() > 0) demand.most = spec.elastic().max_workers();
  return demand;
}

// Takes the first `world` workers by host and name out of `idle`.
std::vector<WorkerId> TakeFirst(std::vector<const WorkerState*>& idle, int64_t world) {
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
  std::vector<WorkerId> taken;
  taken.reserve(world);
  for (const Place& place : ordered) {
    const WorkerState* worker = std::get<2>(place);
    if (static_cast<int64_t>(taken.size()) < world) {
      taken.push_back(worker->id);
    } else {
      idle.push_back(worker);
    }
  }
  return taken;
}

std::string Needs(const Demand& demand) {
  return absl::StrCat(demand.least, demand.least == 1 ? " idle worker" : " idle workers",
                      demand.granule > 1 ? absl::StrCat(" (a multiple of ", demand.granule,
                                                        ": tensor times shard_group)")
                                         : "",
                      demand.least > 1 ? " in one shared-memory domain" : "");
}

}  // namespace

WorkerPools::WorkerPools(const State& state) {
  for (const auto& [id, worker] : state.workers) {
    if (!worker.alive) continue;
    Pool& pool = pools_[{worker.shared_memory_domain, std::string(DeviceKind(worker.device))}];
    ++pool.live;
    if (!worker.seat) pool.idle.push_back(&worker);
  }
}

bool WorkerPools::AnyIdle() const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [](const auto& entry) { return !entry.second.idle.empty(); });
}

GangPlacement WorkerPools::Place(const JobRecord& job) {
  const Demand demand = DemandOf(job.spec);
  Pool* best = nullptr;      // the largest world now
  Pool* promised = nullptr;  // would do if its busy workers were idle
  int64_t world = 0;
  int64_t live = 0;
  for (auto& [key, pool] : pools_) {
    live += pool.live;
    if (const int64_t possible = demand.World(pool.idle.size()); possible > world) {
      best = &pool;
      world = possible;
    }
    if (demand.World(pool.live) > 0 &&
        (promised == nullptr || pool.idle.size() > promised->idle.size())) {
      promised = &pool;
    }
  }
  GangPlacement placement;
  if (best != nullptr) {
    placement.workers = TakeFirst(best->idle, world);
    return placement;
  }
  if (promised == nullptr) {
    placement.waiting = Waiting::kWorkers;
    placement.reason = absl::StrCat("waits for workers to arrive: it needs ", Needs(demand), ", ",
                                    live, " connected");
    return placement;
  }
  placement.waiting = Waiting::kIdleWorkers;
  placement.reason =
      absl::StrCat("waits for busy workers: it needs ", Needs(demand), ", ", promised->idle.size(),
                   " of ", promised->live, " idle and not spoken for");
  for (const WorkerState* worker : promised->idle) placement.reserved.push_back(worker->id);
  promised->idle.clear();
  return placement;
}

}  // namespace sherd
