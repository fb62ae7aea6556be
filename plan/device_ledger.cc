#include "plan/device_ledger.h"

#include <string>

#include "plan/device_scratch.h"
#include "plan/element_bytes.h"
#include "plan/host_staging.h"
#include "plan/offload.h"

namespace sherd {
namespace {

// On the host whatever the device: copies of state, reduction trees, and what groups exchange in.
bool IsOnHost(const std::string& pool) {
  return pool == "replicas" || pool == "accumulators" || pool == "comm";
}

// Where the hosts exchange what lies in arenas of their devices, or is gathered from them.
int64_t ExchangedBytes(const RankPlan& plan, const v1::JobSpec& spec) {
  int64_t bytes = ArenaBytes(plan) + GatheredBytes(plan) + ReplicaArenaBytes(plan);
  if (SumsOverKvCopies(plan)) bytes += ShareBytes(plan, plan.part().kv_copies);
  if (plan.part().place.degree == 1) return bytes;
  return bytes + TensorArenaBytes(plan, spec) + TensorGatheredBytes(plan, spec);
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
                        const v1::RankLedger& processor, std::optional<int64_t> workspace_bytes) {
  v1::RankLedger ledger = processor;
  Lines& device = *ledger.mutable_memory();
  Lines& host = *ledger.mutable_host_memory();
  device.clear();
  for (const auto& [pool, line] : processor.memory()) {
    if (IsOnHost(pool)) {
      Add(host, pool.c_str(), line.predicted());
    } else if (pool != "peak" && pool != "scratch") {
      Add(device, pool.c_str(), line.predicted());
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
  // Sums that the processor would leave where scattered gradients lie.
  int64_t shard_elements = 0;
  for (const UnitLayout& unit : plan.layout.units) shard_elements += unit.shard_elements;
  Add(host, "accumulators", plan.ScattersEachMicroBatch() ? shard_elements * plan.grad_bytes : 0);
  Add(host, "comm", ExchangedBytes(plan, spec));
  const int64_t tokens = spec.train().micro_batch() * spec.train().seq_len();
  Add(host, "staging", 2 * tokens * static_cast<int64_t>(sizeof(int32_t)) + LeafBytes(plan));
  return ledger;
}

}  // namespace sherd
