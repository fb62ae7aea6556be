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

// Everybody who may hold copies for an epoch: its ranks in order, then idle workers.
class Candidates {
 public:
  Candidates(const State& state, const JobRecord& job) : world_(job.ranks.size()) {
    for (const RankState& rank : job.ranks) Add(FindWorker(state, rank.worker));
    for (const WorkerState* spare : Spares(state, job)) Add(spare);
    for (size_t rank = 0; rank < world_; ++rank) {
      parts_.push_back(PartOf(job.spec, static_cast<int>(world_), static_cast<int>(rank)));
      ++ranks_by_part_[parts_.back()];
    }
  }

  std::vector<WorkerId> HoldersOf(size_t rank, int64_t wanted) const {
    int64_t missing = wanted - (ranks_by_part_.at(parts_[rank]) - 1);
    std::vector<WorkerId> chosen;
    // One host has no others to look for.
    if (hosts_.size() > 1) Choose(rank, /*elsewhere=*/true, missing, chosen);
    Choose(rank, /*elsewhere=*/false, missing, chosen);
    return chosen;
  }

 private:
  struct Candidate {
    const WorkerState* worker;
    int host;
  };

  void Add(const WorkerState* worker) {
    SHERD_CHECK(worker != nullptr);
    const int host =
        hosts_.try_emplace(worker->host, static_cast<int>(hosts_.size())).first->second;
    all_.push_back({worker, host});
  }

  // From the next rank on, round to the one before; then the idle ones.
  void Choose(size_t rank, bool elsewhere, int64_t& missing, std::vector<WorkerId>& chosen) const {
    const Candidate& own = all_[rank];
    const size_t others = all_.size() - 1;
    for (size_t step = 1; step <= others && missing > 0; ++step) {
      const size_t at = step < world_ ? (rank + step) % world_ : step;
      if (at < world_ && parts_[at] == parts_[rank]) continue;
      if ((all_[at].host != own.host) != elsewhere) continue;
      if (!CanReach(*own.worker, *all_[at].worker)) continue;
      chosen.push_back(all_[at].worker->id);
      --missing;
    }
  }

  const size_t world_;
  std::vector<Candidate> all_;
  std::map<std::string, int> hosts_;
  std::vector<int> parts_;  // by rank
  std::map<int, int64_t> ranks_by_part_;
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
  const Candidates candidates(state, job);
  const int64_t wanted = WantedCopies(job.spec);
  std::vector<std::vector<WorkerId>> chosen;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    chosen.push_back(candidates.HoldersOf(rank, wanted));
  }
  return chosen;
}

}  // namespace sherd
