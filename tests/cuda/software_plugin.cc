// The software device behind the door that libsherd_cuda.so has, for tests of the whole worker.
// SHERD_TEST_FAILING_PRODUCT=N: the N-th product of matrices fails.
#include <cstdlib>

#include "kernels/cuda/plugin.h"
#include "tests/cuda/software_device.h"

extern "C" __attribute__((visibility("default"))) const char* sherd_device_library_build() {
  return sherd::kDeviceBuild;
}

extern "C" __attribute__((visibility("default"))) sherd::Accelerator* sherd_open_device(
    int index, std::string* why) {
  if (index != 0) {
    *why = "the only GPU is cuda:0";
    return nullptr;
  }
  sherd::simt::SoftwareDriverOptions options;
  if (const char* const product = std::getenv("SHERD_TEST_FAILING_PRODUCT")) {
    options.failing_call = "cublasLtMatmul";
    options.failing_time = std::atoi(product);
  }
  return sherd::OpenSoftwareDevice(options).release();
}
