#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "plan/ledger.h"
#include "worker/train/rank_memory.h"

namespace sherd {

// Makes the stored parameters of what the rank owns of a unit from their master copies.
void StoreParameters(UnitMemory& unit, DType type, Ops& ops);

// Writes the initial values of the parameters that the rank stores and of the master copies that it
// owns: pure functions of (seed, name, index), so no layout changes them. Optimizer state and
// padding stay zero.
void InitializeParameters(const RankPlan& plan, uint64_t seed, RankMemory& memory, Ops& ops);

}  // namespace sherd
