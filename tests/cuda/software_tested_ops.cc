#include "tests/cuda/copied_ops.h"
#include "tests/cuda/software_device.h"
#include "tests/kernels/conformance/tested_ops.h"

namespace sherd {

std::unique_ptr<Ops> MakeTestedOps(int) {
  return MakeCopiedOps(OpenSoftwareDevice({.schedule = simt::Schedule::kLate}), /*bf16=*/false);
}

}  // namespace sherd
