#include "worker/train/device_memory.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/element_bytes.h"
#include "plan/host_staging.h"

namespace sherd {
namespace {

// On the host whatever the device: copies of state, reduction trees, and what the processor's
// kernels would take.
bool IsOnHost(const std::string& pool) {
  return pool == "peak" || pool == "replicas" || pool == "accumulators" || pool == "scratch" ||
         pool == "comm";
}

// Where the hosts exchange what lies in arenas of their devices, or is gathered from them.
int64_t ExchangedBytes(const RankPlan& plan, const v1::JobSpec& spec) {
  int64_t bytes = ArenaBytes(plan) + GatheredBytes(plan) + ReplicaArenaBytes(plan);
  if (SumsOverKvCopies(plan)) bytes += ShareBytes(plan, plan.part().kv_copies);
  if (plan.part().place.degree == 1) return bytes;
  return bytes + TensorArenaBytes(plan, spec) + TensorGatheredBytes(plan, spec);
}

std::string MiB(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

absl::Status PlanDeviceMemory(const v1::RankLedger& predicted, Accelerator& device) {
  std::vector<std::pair<int64_t, std::string>> pools;
  int64_t needed = 0;
  for (const auto& [pool, line] : predicted.memory()) {
    // What ops of a device are known to work in is memory of it.
    const bool of_ops = pool == "scratch" && device.workspace_bytes().has_value();
    if (IsOnHost(pool) && !of_ops) continue;
    pools.emplace_back(line.predicted(), pool);
    needed += line.predicted();
  }
  const int64_t available = device.free_bytes();
  if (needed <= available) {
    device.Reserve(needed);
    return absl::OkStatus();
  }
  std::sort(pools.rbegin(), pools.rend());
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(3, pools.size()); ++i) {
    absl::StrAppend(&largest, i == 0 ? "" : ", ", pools[i].second, " ", MiB(pools[i].first));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a rank of this job takes ", MiB(needed), " (largest: ", largest, ") and ", device.name(),
      " has ", MiB(available), " of its ", MiB(device.memory_bytes()),
      " available; use a smaller model or train.micro_batch, a sharded strategy, or more workers"));
}

v1::RankLedger HostSideOf(const RankPlan& plan, const v1::JobSpec& spec,
                          const v1::RankLedger& predicted) {
  v1::RankLedger host;
  int64_t peak = 0;
  const auto add = [&](const char* pool, int64_t beside) {
    const auto line = predicted.memory().find(pool);
    const int64_t bytes =
        beside + (line == predicted.memory().end() ? 0 : line->second.predicted());
    (*host.mutable_memory())[pool].set_predicted(bytes);
    peak += bytes;
  };
  const int64_t owned_elements = VersionBytes(plan) / kVersionElementBytes;
  // A version that the processor would update, or the home of the state that the device does.
  add("replicas", owned_elements * (plan.keeps_versions ? OptimizerElementBytes(plan.param_bytes)
                                                        : kVersionElementBytes));
  // Sums that the processor would leave where scattered gradients lie.
  int64_t shard_elements = 0;
  for (const UnitLayout& unit : plan.layout.units) shard_elements += unit.shard_elements;
  add("accumulators", plan.ScattersEachMicroBatch() ? shard_elements * plan.grad_bytes : 0);
  add("comm", ExchangedBytes(plan, spec));
  const int64_t tokens = spec.train().micro_batch() * spec.train().seq_len();
  const int64_t staging = 2 * tokens * static_cast<int64_t>(sizeof(int32_t)) + LeafBytes(plan);
  (*host.mutable_memory())["staging"].set_predicted(staging);
  (*host.mutable_memory())["peak"].set_predicted(peak + staging);
  return host;
}

}  // namespace sherd
