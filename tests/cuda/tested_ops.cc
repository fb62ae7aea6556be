// The conformance suite of the ops, through a device's copies and streams.
#include "tests/kernels/conformance/tested_ops.h"

#include "tests/cuda/copied_ops.h"
#include "tests/cuda/tested_devices.h"

namespace sherd {

std::unique_ptr<Ops> MakeTestedOps(int) {
  return MakeCopiedOps(TestedDevices().back().open(), /*bf16=*/false);
}

}  // namespace sherd
