#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace sherd {

// A device that a suite runs on, by the name that its tests have.
struct TestedDevice {
  std::string name;
  std::function<std::unique_ptr<Accelerator>()> open;
};

// Those that a binary is linked with, never none: the software device in both of its schedules, or
// a GPU (gpu_tested_devices.cc).
std::vector<TestedDevice> TestedDevices();

}  // namespace sherd
