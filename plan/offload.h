#pragma once

#include <cstdint>

#include "plan/ledger.h"

namespace sherd {

// Of a device with memory of its own whose optimizer state lives on the host (docs/adr/0015): the
// state passes through so many chunks of its memory, one that comes, one that is updated and one
// that leaves.
inline constexpr int kOffloadSlots = 3;
// Elements of a chunk: no more than the rank owns of any unit.
inline constexpr int64_t kOffloadChunkElements = int64_t{1} << 20;
int64_t OffloadChunkElements(const RankPlan& plan);
// Of all chunks: fp32 parameters are on the device anyway and their own master copies.
int64_t OffloadRingBytes(const RankPlan& plan);

}  // namespace sherd
