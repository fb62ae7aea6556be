#include "coordinator/core/copies.h"

#include <algorithm>

#include "common/check.h"
#include "coordinator/core/worker_order.h"
#include "plan/holdings.h"

namespace sherd {
namespace {

bool CanReach(const WorkerState& from, const WorkerState& to) {
  const bool shares_memory =
      !from.shared_memory_domain.empty() && from.shared_memory_domain == to.shared_memory_domain;
  return shares_memory || !to.network_address.empty();
}

// Live workers without a rank, by place.
std::vector<const WorkerState*> Spares(const State& state, const JobRecord& job) {
  std::vector<const WorkerState*> spares;
  for (const auto& [id, worker] : state.workers) {
    const bool usable = worker.alive && !worker.seat && !worker.draining;
    if (usable && !job.excluded.contains(id)) spares.push_back(&worker);
  }
  SortByPlace(spares);
  return spares;
}

}  // namespace

int64_t WantedCopies(const v1::JobSpec& spec) {
  return spec.elastic().has_replicas() ? spec.elastic().replicas() : 1;
}

int64_t FewestCopies(const JobRecord& job) {
  const int world = static_cast<int>(job.ranks.size());
  std::vector<int64_t> by_part(PartsOf(job.spec, world), -1);
  for (int rank = 0; rank < world; ++rank) {
    const auto holders = static_cast<int64_t>(job.ranks[rank].holders.size());
    by_part[PartOf(job.spec, world, rank)] += 1 + holders;
  }
  return *std::min_element(by_part.begin(), by_part.end());
}

std::vector<std::vector<WorkerId>> ChooseHolders(const State& state, const JobRecord& job) {
  const int world = static_cast<int>(job.ranks.size());
  const int64_t wanted = WantedCopies(job.spec);
  std::vector<const WorkerState*> workers;
  std::vector<int> parts;
  for (int rank = 0; rank < world; ++rank) {
    workers.push_back(FindWorker(state, job.ranks[rank].worker));
    SHERD_CHECK(workers.back() != nullptr);
    parts.push_back(PartOf(job.spec, world, rank));
  }
  const std::vector<const WorkerState*> spares = Spares(state, job);
  std::vector<std::vector<WorkerId>> chosen(world);
  for (int rank = 0; rank < world; ++rank) {
    const WorkerState& own = *workers[rank];
    int64_t missing = wanted - (std::count(parts.begin(), parts.end(), parts[rank]) - 1);
    if (missing <= 0) continue;
    std::vector<const WorkerState*> candidates;
    for (int step = 1; step < world; ++step) {
      const int other = (rank + step) % world;
      if (parts[other] != parts[rank]) candidates.push_back(workers[other]);
    }
    candidates.insert(candidates.end(), spares.begin(), spares.end());
    std::stable_partition(candidates.begin(), candidates.end(),
                          [&](const WorkerState* other) { return other->host != own.host; });
    for (const WorkerState* other : candidates) {
      if (missing == 0) break;
      if (!CanReach(own, *other)) continue;
      chosen[rank].push_back(other->id);
      --missing;
    }
  }
  return chosen;
}

}  // namespace sherd
