#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device.h"

namespace sherd {

// What --device names.
struct DeviceChoice {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;
};
// "auto", "cpu", "cpu:INDEX", "cuda:INDEX". kInvalidArgument says what would be right.
absl::StatusOr<DeviceChoice> ParseDevice(const std::string& device);

// The device that a worker owns.
struct OwnDevice {
  std::string name = "cpu:0";
  // Null: the processor.
  std::unique_ptr<Accelerator> accelerator;
  // What is worth a line in the log; empty: nothing.
  std::string remark;
};

// Opens it by the back end in `library`, which stays loaded: with kAuto the first GPU, or, with a
// remark, the processor where there is none. kFailedPrecondition when a GPU that was named cannot
// be had, with what is missing: library, driver, device.
absl::StatusOr<OwnDevice> OpenOwnDevice(const DeviceChoice& choice, const std::string& library);

// libsherd_cuda.so beside this program, or in lib/sherd beside its directory.
std::string DefaultDeviceLibrary();

}  // namespace sherd
