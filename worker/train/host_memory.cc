#include "worker/train/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sherd {
namespace {

// Bytes that new allocations can take without swapping; -1 when unknown.
int64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (meminfo >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return -1;
}

std::string GiB(int64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

absl::Status CheckHostMemory(const google::protobuf::Map<std::string, v1::LedgerLine>& predicted,
                             int64_t stored_for_bytes, int ranks) {
  const int64_t available = AvailableBytes();
  std::vector<std::pair<int64_t, std::string>> pools;
  int64_t needed = 0;
  for (const auto& [pool, line] : predicted) {
    if (pool == "peak") {
      needed = line.predicted();
    } else {
      pools.emplace_back(line.predicted(), pool);
    }
  }
  const int64_t each = needed - stored_for_bytes;
  // In units of the available bytes, so that no product overflows.
  const int64_t room = (available - stored_for_bytes) / std::max(1, ranks);
  if (available < 0 || (available >= stored_for_bytes && each <= room)) return absl::OkStatus();
  std::sort(pools.rbegin(), pools.rend());
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(3, pools.size()); ++i) {
    absl::StrAppend(&largest, i == 0 ? "" : ", ", pools[i].second, " ", GiB(pools[i].first));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a rank of this job takes ", GiB(each),
      stored_for_bytes > 0
          ? absl::StrCat(" beside ", GiB(stored_for_bytes), " for ranks on other hosts")
          : "",
      " (largest: ", largest, ") and ", ranks, " of them share this host, which has ",
      GiB(available),
      " available; use a smaller model or train.micro_batch, a sharded strategy, or more hosts"));
}

}  // namespace sherd
