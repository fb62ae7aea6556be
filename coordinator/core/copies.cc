#include "coordinator/core/copies.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/check.h"
#include "coordinator/core/worker_order.h"
#include "plan/holdings.h"

namespace sherd {
namespace {

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

// Everybody who may hold copies for an epoch: its ranks in order, then idle workers.
class Candidates {
 public:
  Candidates(const State& state, const JobRecord& job) : job_(job), world_(job.ranks.size()) {
    for (const RankState& rank : job.ranks) Add(FindWorker(state, rank.worker));
    for (const WorkerState* spare : Spares(state, job)) Add(spare);
    stored_.resize(all_.size());
    for (size_t rank = 0; rank < world_; ++rank) {
      parts_.push_back(PartOf(job.spec, static_cast<int>(world_), static_cast<int>(rank)));
      ++ranks_by_part_[parts_.back()];
    }
  }

  // Of ranks one after another.
  std::vector<WorkerId> HoldersOf(size_t rank, int64_t wanted) {
    const int64_t missing = wanted - (ranks_by_part_.at(parts_[rank]) - 1);
    std::vector<WorkerId> chosen;
    if (missing <= 0) return chosen;
    for (const size_t at : Preferred(rank, missing)) {
      if (std::ssize(chosen) == missing) break;
      chosen.push_back(all_[at]->id);
      ++stored_[at];
    }
    return chosen;
  }

 private:
  void Add(const WorkerState* worker) {
    SHERD_CHECK(worker != nullptr);
    all_.push_back(worker);
  }

  // Who may store the rank's shard, the best first; at least the `wanted` best.
  std::vector<size_t> Preferred(size_t rank, int64_t wanted) const {
    const WorkerState& owner = *all_[rank];
    std::vector<size_t> away;
    std::vector<size_t> idle_away;
    std::vector<size_t> near;
    int64_t free = 0;
    for (size_t step = 1; step < all_.size() && free < wanted; ++step) {
      // From the next rank on, round to the one before; then the idle ones.
      const size_t at = step < world_ ? (rank + step) % world_ : step;
      if (at < world_ && parts_[at] == parts_[rank]) continue;
      if (!Reaches(owner, *all_[at]) || IsBroken(job_, owner.id, all_[at]->id)) continue;
      const bool elsewhere = all_[at]->host != owner.host;
      (!elsewhere ? near : at < world_ ? away : idle_away).push_back(at);
      if (elsewhere && at < world_ && stored_[at] == 0) ++free;
    }
    std::stable_sort(away.begin(), away.end(),
                     [this](size_t a, size_t b) { return stored_[a] < stored_[b]; });
    away.insert(away.end(), idle_away.begin(), idle_away.end());
    away.insert(away.end(), near.begin(), near.end());
    return away;
  }

  const JobRecord& job_;
  const size_t world_;
  std::vector<const WorkerState*> all_;
  std::vector<int> parts_;  // by rank
  std::map<int, int64_t> ranks_by_part_;
  // Shards that each was chosen for.
  std::vector<int64_t> stored_;
};

}  // namespace

int64_t WantedCopies(const v1::JobSpec& spec) {
  return spec.elastic().has_replicas() ? spec.elastic().replicas() : 1;
}

int64_t FewestCopies(const JobRecord& job) {
  const int world = static_cast<int>(job.ranks.size());
  // Ranks of one part may have the same holder.
  std::vector<std::set<WorkerId>> by_part(PartsOf(job.spec, world));
  for (int rank = 0; rank < world; ++rank) {
    std::set<WorkerId>& processes = by_part[PartOf(job.spec, world, rank)];
    processes.insert(job.ranks[rank].worker);
    processes.insert(job.ranks[rank].holders.begin(), job.ranks[rank].holders.end());
  }
  size_t fewest = SIZE_MAX;
  for (const std::set<WorkerId>& processes : by_part) fewest = std::min(fewest, processes.size());
  return static_cast<int64_t>(fewest) - 1;
}

std::vector<std::vector<WorkerId>> ChooseHolders(const State& state, const JobRecord& job) {
  Candidates candidates(state, job);
  const int64_t wanted = WantedCopies(job.spec);
  std::vector<std::vector<WorkerId>> chosen;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    chosen.push_back(candidates.HoldersOf(rank, wanted));
  }
  return chosen;
}

std::map<WorkerId, std::vector<int>> StoredOverNetwork(const State& state, const JobRecord& job) {
  std::map<WorkerId, std::vector<int>> stored;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const WorkerState* owner = FindWorker(state, job.ranks[rank].worker);
    for (const WorkerId& id : job.ranks[rank].holders) {
      const WorkerState* holder = FindWorker(state, id);
      if (owner == nullptr || holder == nullptr || ShareMemory(*owner, *holder)) continue;
      stored[id].push_back(static_cast<int>(rank));
    }
  }
  return stored;
}

}  // namespace sherd
