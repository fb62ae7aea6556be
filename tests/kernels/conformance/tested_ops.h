#pragma once

#include <memory>

#include "kernels/ops.h"

namespace sherd {

// The back end that the conformance suite is linked with: one suite, one binary for each. `threads`
// are the processor's, where it has a say.
std::unique_ptr<Ops> MakeTestedOps(int threads);

}  // namespace sherd
