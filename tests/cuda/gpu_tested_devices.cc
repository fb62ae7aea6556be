// A GPU, for scripts/gpu_check.sh and no test of the suite. The back end is that beside the
// program, or, by SHERD_DEVICE_LIBRARY, another. A program that gets no device ends: nobody asks
// for it without one.
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/cuda/tested_devices.h"
#include "worker/device/open_device.h"

namespace sherd {

std::vector<TestedDevice> TestedDevices() {
  return {{"Gpu", [] {
             const char* const library = std::getenv("SHERD_DEVICE_LIBRARY");
             absl::StatusOr<OwnDevice> own =
                 OpenOwnDevice({DeviceChoice::Kind::kCuda, 0},
                               library == nullptr ? DefaultDeviceLibrary() : library);
             if (!own.ok()) {
               std::fprintf(stderr, "%s\n", std::string(own.status().message()).c_str());
               std::exit(1);
             }
             return std::move(own->accelerator);
           }}};
}

}  // namespace sherd
