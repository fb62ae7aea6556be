#include "tests/kernels/conformance/tested_ops.h"

#include "tests/simt/simt_ops.h"

namespace sherd {

std::unique_ptr<Ops> MakeTestedOps(int) { return simt::MakeSimtOps(); }

}  // namespace sherd
