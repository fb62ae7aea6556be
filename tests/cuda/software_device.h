#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_device.h"
#include "tests/simt/software_driver.h"

namespace sherd {

// "cuda:0", on the software driver.
inline absl::StatusOr<std::unique_ptr<CudaDevice>> TryOpenSoftwareDevice(
    const simt::SoftwareDriverOptions& options, absl::Duration hang_limit = kHangLimit) {
  return CudaDevice::Open(std::make_unique<simt::SoftwareDriver>(options), "cuda:0", hang_limit);
}
inline std::unique_ptr<CudaDevice> OpenSoftwareDevice(
    const simt::SoftwareDriverOptions& options = {}, absl::Duration hang_limit = kHangLimit) {
  return *TryOpenSoftwareDevice(options, hang_limit);
}

}  // namespace sherd
