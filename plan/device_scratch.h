#pragma once

#include <cstdint>

#include "plan/ledger.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// The largest that a call of a GPU's ops (kernels/cuda) works in, in bytes: its kernels, and the
// operands of a product that are rounded before it.
struct DeviceScratch {
  int64_t kernels = 0;
  int64_t operands = 0;
};
DeviceScratch LargestDeviceScratch(const RankPlan& plan, const v1::JobSpec& spec);

// Predicts what these ops work in: `workspace_bytes` of the library of products, a place for sums,
// and LargestDeviceScratch, which they take from the beginning. To the byte where hidden, ffn,
// heads and vocab make rows of whole 16 bytes; of others, copies of what lies less aligned come on
// top.
int64_t PredictDeviceScratch(const RankPlan& plan, const v1::JobSpec& spec,
                             int64_t workspace_bytes);

}  // namespace sherd
