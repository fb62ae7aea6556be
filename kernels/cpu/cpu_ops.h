#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/memory.h"
#include "kernels/ops.h"

namespace sherd {

// Floats that the kernels work in: of each thread, and shared by all.
struct CpuScratchSizes {
  int64_t panel = 0, tile = 0, values = 0;
  int64_t shared = 0;
};

// Ops on the calling machine's processor with `threads` >= 1 threads (oneDNN for GEMM, Highway for
// the rest). What they work in, at first `reserved`, is counted in Pool::kScratch of `meter`, which
// must outlive them. It grows with the shapes that are asked for, on every thread alike whichever
// works on a tile, and is kept: the largest shapes alone say how much it is, and PredictScratch
// (plan/scratch.h) says it for a model.
std::unique_ptr<Ops> MakeCpuOps(int threads, MemoryMeter& meter,
                                const CpuScratchSizes& reserved = {});
// The same, counted nowhere.
std::unique_ptr<Ops> MakeCpuOps(int threads);

// Names what the bits of CPU results depend on: build and instruction set.
std::string CpuNumericsFingerprint();

}  // namespace sherd
