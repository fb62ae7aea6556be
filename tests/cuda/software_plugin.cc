// The software device behind the door that libsherd_cuda.so has, for tests of the whole worker.
#include "kernels/cuda/plugin.h"
#include "tests/cuda/software_device.h"

extern "C" __attribute__((visibility("default"))) const char* sherd_device_library_build() {
  return sherd::kDeviceBuild;
}

extern "C" __attribute__((visibility("default"))) sherd::Accelerator* sherd_open_device(
    int index, std::string* why) {
  if (index == 0) return sherd::OpenSoftwareDevice().release();
  *why = "the only GPU is cuda:0";
  return nullptr;
}
