#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace sherd {

// An accelerator's ops on memory of the host, for suites that know no device: every operation's
// operands are copied there, and its results back. A failure of the device fails the test. `bf16`
// as in DeviceOpsOptions.
std::unique_ptr<Ops> MakeCopiedOps(std::unique_ptr<Accelerator> accelerator, bool bf16);

}  // namespace sherd
