#pragma once

#include <memory>

#include "kernels/device.h"
#include "worker/comm/nccl/nccl_api.h"

namespace sherd {

// A device, and by what it forms groups.
struct TestedNccl {
  std::unique_ptr<Accelerator> device;
  std::unique_ptr<NcclApi> nccl;
};

// What a binary is linked with: a software device and a stand-in, or a GPU and NCCL
// (gpu_tested_nccl.cc). A program that gets none ends.
TestedNccl OpenTestedNccl();

}  // namespace sherd
