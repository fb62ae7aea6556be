#include "tests/kernels/conformance/tested_ops.h"

#include "kernels/cpu/cpu_ops.h"

namespace sherd {

std::unique_ptr<Ops> MakeTestedOps(int threads) { return MakeCpuOps(threads); }

}  // namespace sherd
