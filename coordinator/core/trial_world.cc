#include "coordinator/core/trial_world.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "common/check.h"
#include "plan/cost_profiles.h"

namespace sherd {
namespace {

constexpr int64_t kMostTensor = 16;

bool IsProcessor(const WorkerState& worker) { return absl::StartsWith(worker.device, "cpu"); }

// Every `tensor` adjacent ranks share memory.
bool GroupsShareMemory(const std::vector<const WorkerState*>& ranks, size_t tensor) {
  for (size_t first = 0; first < ranks.size(); first += tensor) {
    for (size_t rank = first + 1; rank < first + tensor; ++rank) {
      if (!ShareMemory(*ranks[first], *ranks[rank])) return false;
    }
  }
  return true;
}

void SetLimits(const std::vector<const WorkerState*>& ranks, MemoryLimits& limits) {
  // By host.
  std::map<std::string, int64_t> sharing;
  for (const WorkerState* worker : ranks) ++sharing[worker->host];
  for (const WorkerState* worker : ranks) {
    if (worker->memory_bytes <= 0) continue;
    const int64_t share = IsProcessor(*worker) ? worker->memory_bytes / sharing.at(worker->host)
                                               : worker->memory_bytes;
    limits.device = limits.device ? std::min(*limits.device, share) : share;
  }
}

std::vector<const WorkerState*> RanksOf(const State& state, const std::vector<WorkerId>& workers) {
  std::vector<const WorkerState*> ranks;
  for (const WorkerId& id : workers) {
    ranks.push_back(FindWorker(state, id));
    SHERD_CHECK(ranks.back() != nullptr);
  }
  return ranks;
}

}  // namespace

CandidateWorld WorldOf(const State& state, const std::vector<WorkerId>& workers) {
  const std::vector<const WorkerState*> ranks = RanksOf(state, workers);
  CandidateWorld world;
  world.ranks = static_cast<int>(ranks.size());
  world.tensor_degrees.clear();
  const int64_t most = std::min<int64_t>(kMostTensor, world.ranks);
  for (int64_t tensor = 1; tensor <= most; ++tensor) {
    if (world.ranks % tensor != 0) continue;
    if (GroupsShareMemory(ranks, static_cast<size_t>(tensor))) {
      world.tensor_degrees.push_back(tensor);
    }
  }
  SetLimits(ranks, world.limits);
  return world;
}

CostModel ProfileOf(const State& state, const std::vector<WorkerId>& workers) {
  const std::vector<const WorkerState*> ranks = RanksOf(state, workers);
  return *FindCostProfile(IsProcessor(*ranks.front()) ? "cpu" : "h100");
}

}  // namespace sherd
