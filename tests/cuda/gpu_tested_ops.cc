// The conformance suite on a GPU. Without one every test fails, for then nobody asked for it: the
// suite is run by scripts/gpu_check.sh and by no other.
#include <cstdio>
#include <cstdlib>

#include "tests/cuda/copied_ops.h"
#include "tests/kernels/conformance/tested_ops.h"
#include "worker/device/open_device.h"

namespace sherd {

std::unique_ptr<Ops> MakeTestedOps(int) {
  absl::StatusOr<OwnDevice> own =
      OpenOwnDevice({DeviceChoice::Kind::kCuda, 0}, SHERD_TEST_CUDA_LIBRARY);
  if (!own.ok()) {
    std::fprintf(stderr, "%s\n", std::string(own.status().message()).c_str());
    std::exit(1);
  }
  return MakeCopiedOps(std::move(own->accelerator), /*bf16=*/false);
}

}  // namespace sherd
