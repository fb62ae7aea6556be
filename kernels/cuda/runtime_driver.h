#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace sherd {

// GPU `index` by the CUDA runtime and cuBLASLt. kUnavailable with what is missing: a driver, one
// that is new enough, a GPU, that one, a compute capability that kernels were compiled for.
absl::StatusOr<std::unique_ptr<CudaDriver>> MakeRuntimeDriver(int index);

}  // namespace sherd
