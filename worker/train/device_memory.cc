#include "worker/train/device_memory.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sherd {
namespace {

std::string MiB(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

absl::Status PlanDeviceMemory(const v1::RankLedger& predicted, Accelerator& device,
                              int64_t of_nccl) {
  std::vector<std::pair<int64_t, std::string>> pools;
  int64_t needed = 0;
  for (const auto& [pool, line] : predicted.memory()) {
    if (pool == "peak") continue;
    pools.emplace_back(line.predicted(), pool);
    needed += line.predicted();
  }
  const int64_t available = device.free_bytes();
  if (needed <= available) {
    // What an earlier job has left must not be in its way.
    if (of_nccl > 0) device.GiveBack();
    device.Reserve(needed - of_nccl);
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
      " available; use a smaller model or train.micro_batch, a sharded strategy, ",
      predicted.offload() == v1::OFFLOAD_OPTIMIZER ? "" : "parallel.offload: optimizer, ",
      "or more workers"));
}

}  // namespace sherd
