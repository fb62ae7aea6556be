#include "plan/device_ledger.h"

#include <string>
#include <vector>

#include "plan/device_scratch.h"
#include "plan/element_bytes.h"
#include "plan/host_staging.h"
#include "plan/offload.h"

namespace sherd {
namespace {

// A group that the rank forms, and what it has there beside what CommBytes says.
struct Exchange {
  Medium medium = Medium::kSharedMemory;
  int64_t members = 1;
  int64_t arena_bytes = 0;
  int64_t gathered_bytes = 0;  // elsewhere than in the arena
};

std::vector<Exchange> ExchangesOf(const RankPlan& plan, const v1::JobSpec& spec,
                                  const GroupMedia& media) {
  std::vector<Exchange> all = {
      {media.sharers, plan.layout.degree, ArenaBytes(plan), GatheredBytes(plan)}};
  if (plan.AddsReplicas()) {
    all.push_back({media.replicas, plan.micro_batches.degree / plan.layout.degree,
                   ReplicaArenaBytes(plan), 0});
  }
  const ModelPart& part = plan.part();
  if (part.place.degree > 1) {
    all.push_back({media.tensor, part.place.degree, TensorArenaBytes(plan, spec),
                   TensorGatheredBytes(plan, spec)});
  }
  if (SumsOverKvCopies(plan)) {
    all.push_back({media.kv_copies, part.kv_copies, ShareBytes(plan, part.kv_copies), 0});
  }
  return all;
}

using Lines = google::protobuf::Map<std::string, v1::LedgerLine>;

int64_t PredictedOf(const Lines& lines, const char* pool) {
  const auto line = lines.find(pool);
  return line == lines.end() ? 0 : line->second.predicted();
}

void Add(Lines& lines, const char* pool, int64_t bytes) {
  for (const char* const each : {pool, "peak"}) {
    v1::LedgerLine& line = lines[each];
    line.set_predicted(line.predicted() + bytes);
  }
}

}  // namespace

v1::RankLedger OnDevice(const RankPlan& plan, const v1::JobSpec& spec,
                        const v1::RankLedger& processor, std::optional<int64_t> workspace_bytes,
                        const GroupMedia& media) {
  v1::RankLedger ledger = processor;
  Lines& device = *ledger.mutable_memory();
  Lines& host = *ledger.mutable_host_memory();
  device.clear();
  // Over NCCL sums come about on the device.
  const bool sums_on_host = media.sharers != Medium::kNccl;
  for (const auto& [pool, line] : processor.memory()) {
    if (pool == "replicas" || (pool == "accumulators" && sums_on_host)) {
      Add(host, pool.c_str(), line.predicted());
    } else if (pool != "peak" && pool != "scratch" && pool != "comm") {
      Add(device, pool.c_str(), line.predicted());
    }
  }
  for (const Exchange& group : ExchangesOf(plan, spec, media)) {
    const int64_t comm = CommBytes(group.medium, group.members);
    if (group.medium == Medium::kNccl) {
      Add(device, "comm", comm);
    } else {
      // The hosts exchange what lies in arenas of their devices, or is gathered from them.
      Add(host, "comm", comm + group.arena_bytes + group.gathered_bytes);
    }
  }
  if (workspace_bytes) Add(device, "scratch", PredictDeviceScratch(plan, spec, *workspace_bytes));
  const int64_t owned = VersionBytes(plan) / kVersionElementBytes;
  const int64_t element_bytes = OptimizerElementBytes(plan.param_bytes);
  if (plan.keeps_versions) {
    // What the processor updates is one of the versions.
    Add(host, "replicas", owned * element_bytes);
  } else {
    Add(host, "replicas", plan.offloads ? 0 : owned * kVersionElementBytes);
  }
  if (plan.offloads) {
    const int64_t optimizer = PredictedOf(processor.memory(), "optimizer");
    const int64_t padding = owned - optimizer / element_bytes;
    Add(device, "optimizer", -optimizer);
    Add(device, "padding", -padding * element_bytes);
    Add(device, "staging", OffloadRingBytes(plan));
    Add(host, "optimizer", (owned - padding) * kVersionElementBytes);
    Add(host, "padding", padding * kVersionElementBytes);
    if (plan.keeps_versions) Add(host, "replicas", -owned * kVersionElementBytes);
  }
  int64_t staging = 2 * spec.train().micro_batch() * spec.train().seq_len() *
                    static_cast<int64_t>(sizeof(int32_t));
  if (sums_on_host) {
    // Sums that the processor would leave where scattered gradients lie.
    int64_t shard_elements = 0;
    for (const UnitLayout& unit : plan.layout.units) shard_elements += unit.shard_elements;
    Add(host, "accumulators", plan.ScattersEachMicroBatch() ? shard_elements * plan.grad_bytes : 0);
    staging += LeafBytes(plan);
  }
  Add(host, "staging", staging);
  return ledger;
}

int64_t NcclBytes(const RankPlan& plan, const v1::JobSpec& spec, const GroupMedia& media) {
  int64_t bytes = 0;
  for (const Exchange& group : ExchangesOf(plan, spec, media)) {
    if (group.medium != Medium::kNccl) continue;
    bytes += group.arena_bytes + CommBytes(group.medium, group.members);
  }
  return bytes;
}

}  // namespace sherd
