#pragma once

#include <memory>
#include <string>

#include "kernels/ops.h"

namespace sherd {

// Ops on the calling machine's processor with `threads` >= 1 threads (oneDNN for GEMM, Highway for
// the rest).
std::unique_ptr<Ops> MakeCpuOps(int threads);

// Names what the bits of CPU results depend on: build and instruction set.
std::string CpuNumericsFingerprint();

}  // namespace sherd
