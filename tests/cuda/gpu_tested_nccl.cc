// A GPU and NCCL, for scripts/gpu_check.sh and no test of the suite. Without NCCL, or with a back
// end that is no GPU's, the program says so and ends with 77: nothing was run.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/cuda/tested_devices.h"
#include "tests/cuda/tested_nccl.h"
#include "worker/comm/nccl/nccl_library.h"

namespace sherd {
namespace {

[[noreturn]] void EndWithoutRunning(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(77);
}

}  // namespace

TestedNccl OpenTestedNccl() {
  TestedNccl tested{.device = TestedDevices().front().open(), .nccl = nullptr};
  if (tested.device->unique_id().empty()) EndWithoutRunning("the device is no GPU");
  absl::StatusOr<std::unique_ptr<NcclApi>> nccl = OpenNccl();
  if (!nccl.ok()) EndWithoutRunning(std::string(nccl.status().message()));
  tested.nccl = *std::move(nccl);
  return tested;
}

}  // namespace sherd
