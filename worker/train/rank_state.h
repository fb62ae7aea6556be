#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "plan/ledger.h"
#include "worker/train/rank_memory.h"

namespace sherd {

// Has `read` enqueue what reads the master copies of what the rank owns of a unit, where ops reach
// them: all at once, or elements [begin, end) at a time.
void ReadMasters(RankMemory& memory, int unit,
                 absl::FunctionRef<void(int64_t begin, int64_t end, const float* masters)> read);

// Makes the stored parameters of what the rank owns of a unit from them.
void StoreParameters(RankMemory& memory, int unit, Ops& ops);

// Of a device with memory of its own; nothing else does anything. The state's home on the host is
// what it works on; and the other way round, unless every update brings it home (versions).
void SendState(UnitMemory& unit, Device& device);
void BringStateHome(const RankPlan& plan, RankMemory& memory, Device& device);

// Writes the initial values of the parameters that the rank stores and of the master copies that it
// owns: pure functions of (seed, name, index), so no layout changes them. Optimizer state and
// padding stay zero.
void InitializeParameters(const RankPlan& plan, uint64_t seed, RankMemory& memory, Ops& ops,
                          Device& device);

}  // namespace sherd
