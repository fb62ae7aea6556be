#pragma once

#include <cstdint>

#include "plan/ledger.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// Predicts what the ops of a GPU (kernels/cuda) work in once the rank has trained on a micro-batch:
// `workspace_bytes` of the library of products, a place for sums, and two pieces that grow to what
// the largest call takes. To the byte where hidden, ffn, heads and vocab make rows of whole 16
// bytes; of others, copies of what lies less aligned come on top.
int64_t PredictDeviceScratch(const RankPlan& plan, const v1::JobSpec& spec,
                             int64_t workspace_bytes);

}  // namespace sherd
