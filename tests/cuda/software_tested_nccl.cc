#include "tests/cuda/software_device.h"
#include "tests/cuda/software_nccl.h"
#include "tests/cuda/tested_nccl.h"

namespace sherd {

TestedNccl OpenTestedNccl() {
  return {OpenSoftwareDevice(),
          std::make_unique<ScriptedNccl>(std::make_unique<NcclOnSoftwareDevices>())};
}

}  // namespace sherd
