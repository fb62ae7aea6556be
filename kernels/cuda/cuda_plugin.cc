// The back end for NVIDIA GPUs, libsherd_cuda.so.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/runtime_driver.h"

extern "C" __attribute__((visibility("default"))) const char* sherd_device_library_build() {
  return sherd::kDeviceBuild;
}

extern "C" __attribute__((visibility("default"))) sherd::Accelerator* sherd_open_device(
    int index, std::string* why) {
  absl::StatusOr<std::unique_ptr<sherd::CudaDriver>> driver = sherd::MakeRuntimeDriver(index);
  if (!driver.ok()) {
    *why = std::string(driver.status().message());
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<sherd::CudaDevice>> device =
      sherd::CudaDevice::Open(*std::move(driver), absl::StrCat("cuda:", index));
  if (!device.ok()) {
    *why = std::string(device.status().message());
    return nullptr;
  }
  return device->release();
}
