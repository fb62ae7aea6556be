#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "plan/ledger.h"
#include "worker/train/rank_memory.h"

namespace sherd {

// Makes the stored parameters of what the rank owns of a unit from the master copies that ops work
// on.
void StoreParameters(UnitMemory& unit, DType type, Ops& ops);

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
