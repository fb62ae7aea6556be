#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/nvml.h"

namespace sherd {

// The name by which the dynamic linker finds NVML, which comes with the driver.
inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// What can be told of a GPU, in base units.
enum class GpuFigure {
  kUtilization,        // share of time in which a kernel ran
  kMemoryUtilization,  // share of time in which memory was read or written
  kMemory,
  kMemoryUsed,
  kProcessMemory,  // this process's
  kPower,
  kTemperature,
  kClock,             // by clock
  kEccErrors,         // uncorrected, since the driver was loaded
  kThrottleReason,    // by reason, 0 or 1
  kLinkBytes,         // NVLink, by direction, since the driver was loaded
  kPcieBytesASecond,  // by direction
};
struct GpuSample {
  GpuFigure figure;
  // Which one of several, as "sm"; empty: there is one.
  absl::string_view which;
  double value;
};

// A GPU as NVML sees it. Calls may take as long as the driver likes. One thread at a time.
class GpuReadings {
 public:
  // Opens `library`, which stays open, and finds the GPU at a PCI address, "0000:65:00.0".
  // kUnavailable, a clause that names the library or the call: there is none, it is not NVML, it
  // does not start, it knows no such GPU.
  static absl::StatusOr<std::unique_ptr<GpuReadings>> Open(const std::string& library,
                                                           const std::string& pci_address);

  // "GPU-…", which no other GPU has.
  const std::string& uuid() const { return uuid_; }

  // Readings are independent of each other: each is one call.
  static size_t count();
  // The call that a reading makes.
  static absl::string_view NameOf(size_t reading);
  // kUnavailable with the call and what NVML says; kNotFound when this process is not among those
  // that NVML lists, by numbers of another PID namespace.
  absl::StatusOr<std::vector<GpuSample>> Read(size_t reading) const;

 private:
  GpuReadings(const NvmlCalls& calls, NvmlDevice device, std::string uuid);

  const NvmlCalls calls_;
  const NvmlDevice device_;
  const std::string uuid_;
};

}  // namespace sherd
