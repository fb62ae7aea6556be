#pragma once

#include "absl/status/status.h"
#include "kernels/device.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// Reserves in one piece what a rank is predicted (OnDevice) to hold of the device, but for what
// `of_nccl` bytes of it NCCL takes by itself.
// kResourceExhausted, with the largest pools and what the device has, when that cannot fit.
absl::Status PlanDeviceMemory(const v1::RankLedger& predicted, Accelerator& device,
                              int64_t of_nccl = 0);

}  // namespace sherd
