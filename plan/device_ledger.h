#pragma once

#include <cstdint>
#include <optional>

#include "plan/ledger.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"

namespace sherd {

// The ledger of a rank whose device has memory of its own, of what PredictLedger says of the
// processor: `memory` is the device's and `host_memory` what the host holds beside it. Without
// `workspace_bytes`, what the device's library of products works in, its scratch is not predicted.
// `media` as in the processor's.
v1::RankLedger OnDevice(const RankPlan& plan, const v1::JobSpec& spec,
                        const v1::RankLedger& processor, std::optional<int64_t> workspace_bytes,
                        const GroupMedia& media = {});

// What of the device's is memory that groups over NCCL take by themselves: their arenas, and what
// they receive pieces in.
int64_t NcclBytes(const RankPlan& plan, const v1::JobSpec& spec, const GroupMedia& media);

}  // namespace sherd
