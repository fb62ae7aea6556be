#pragma once

#include "kernels/memory.h"
#include "sherd/v1/events.pb.h"
#include "worker/comm/communicator.h"

namespace sherd {

// Fills in the measured halves of `ledger` from counters kept where memory is allocated and where
// bytes move. `step` holds what one step sent. Adds the pools and collectives that nobody
// predicted, with what they took.
void FillMeasured(const MemoryMeter& meter, const WireCounts& step, v1::RankLedger& ledger);

// What was counted between two readings.
WireCounts Difference(const WireCounts& later, const WireCounts& earlier);

}  // namespace sherd
