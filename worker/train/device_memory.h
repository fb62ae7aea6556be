#pragma once

#include "absl/status/status.h"
#include "kernels/device.h"
#include "plan/ledger.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Reserves in one piece what a rank is predicted to hold of the device. kResourceExhausted, with
// the largest pools and what the device has, when that cannot fit.
absl::Status PlanDeviceMemory(const v1::RankLedger& predicted, Accelerator& device);

// Of a rank whose device has memory of its own, and whose ledger is `predicted`: what it holds on
// the host, by pool, and the peak, as CheckHostMemory takes them.
v1::RankLedger HostSideOf(const RankPlan& plan, const v1::JobSpec& spec,
                          const v1::RankLedger& predicted);

}  // namespace sherd
