#pragma once

#include "kernels/memory.h"
#include "sherd/v1/events.pb.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// Fills in the measured halves of `ledger` from counters kept where memory is allocated and where
// bytes move. `step` holds what one step sent. Adds the pools and collectives that nobody
// predicted, with what they took.
void FillMeasured(const MemoryMeter& meter, const GroupCounts& step, v1::RankLedger& ledger);

// What was counted between two readings.
GroupCounts Difference(const GroupCounts& later, const GroupCounts& earlier);

}  // namespace sherd
