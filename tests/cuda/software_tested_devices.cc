#include "tests/cuda/software_device.h"
#include "tests/cuda/tested_devices.h"

namespace sherd {

std::vector<TestedDevice> TestedDevices() {
  return {{"Guarded", [] { return OpenSoftwareDevice({.schedule = simt::Schedule::kGuarded}); }},
          {"Late", [] { return OpenSoftwareDevice({.schedule = simt::Schedule::kLate}); }}};
}

}  // namespace sherd
