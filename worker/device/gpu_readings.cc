#include "worker/device/gpu_readings.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr unsigned kUuidLength = 96;
constexpr double kPerCent = 100;
constexpr double kPerUnit = 1000;  // thousandths
constexpr double kMega = 1e6;
// NVML counts PCIe traffic in thousands of bytes, NVLink's in KiB.
constexpr double kKilo = 1e3;
constexpr double kKibi = 1024;

// Bits of nvmlDeviceGetCurrentClocksThrottleReasons, from the lowest.
constexpr const char* kThrottleReasons[] = {
    "idle",          "application_clocks", "power_cap",        "hardware_slowdown",
    "sync_boost",    "software_thermal",   "hardware_thermal", "hardware_power_brake",
    "display_clocks"};

absl::Status Failed(const NvmlCalls& nvml, absl::string_view call, NvmlResult result) {
  return absl::UnavailableError(
      absl::StrCat(call, " failed: ", nvml.nvmlErrorString(result), " (", result, ")"));
}

#define SHERD_RETURN_UNLESS_READ(call, ...)                         \
  do {                                                              \
    const NvmlResult result = nvml.call(__VA_ARGS__);               \
    if (result != kNvmlSuccess) return Failed(nvml, #call, result); \
  } while (false)

using Samples = std::vector<GpuSample>;
using Answer = absl::StatusOr<Samples>;

Answer ReadUtilization(const NvmlCalls& nvml, NvmlDevice device) {
  NvmlUtilization share = {};
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetUtilizationRates, device, &share);
  return Samples{{GpuFigure::kUtilization, "", share.gpu / kPerCent},
                 {GpuFigure::kMemoryUtilization, "", share.memory / kPerCent}};
}

Answer ReadMemory(const NvmlCalls& nvml, NvmlDevice device) {
  NvmlMemory memory = {};
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetMemoryInfo, device, &memory);
  return Samples{{GpuFigure::kMemory, "", static_cast<double>(memory.total)},
                 {GpuFigure::kMemoryUsed, "", static_cast<double>(memory.used)}};
}

Answer ReadProcess(const NvmlCalls& nvml, NvmlDevice device) {
  // As many as there were a moment ago, and some that came since.
  unsigned count = 0;
  NvmlResult result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr);
  std::vector<NvmlProcess> processes;
  if (result == kNvmlInsufficientSize) {
    count += 8;
    processes.resize(count);
    result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes.data());
  }
  if (result != kNvmlSuccess) {
    return Failed(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", result);
  }
  processes.resize(std::min<size_t>(count, processes.size()));
  double used = 0;
  bool found = false;
  for (const NvmlProcess& process : processes) {  // once a part of the GPU that it uses
    if (process.pid != static_cast<unsigned>(getpid())) continue;
    if (process.used_memory == kNvmlNotAvailable) continue;
    found = true;
    used += static_cast<double>(process.used_memory);
  }
  if (!found) {
    return absl::NotFoundError(
        "nvmlDeviceGetComputeRunningProcesses_v3 does not tell this process's memory");
  }
  return Samples{{GpuFigure::kProcessMemory, "", used}};
}

Answer ReadPower(const NvmlCalls& nvml, NvmlDevice device) {
  unsigned milliwatts = 0;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetPowerUsage, device, &milliwatts);
  return Samples{{GpuFigure::kPower, "", milliwatts / kPerUnit}};
}

Answer ReadTemperature(const NvmlCalls& nvml, NvmlDevice device) {
  unsigned celsius = 0;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetTemperature, device, kNvmlGpuTemperature, &celsius);
  return Samples{{GpuFigure::kTemperature, "", static_cast<double>(celsius)}};
}

template <int kClock>
Answer ReadClock(const NvmlCalls& nvml, NvmlDevice device) {
  unsigned megahertz = 0;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetClockInfo, device, kClock, &megahertz);
  return Samples{{GpuFigure::kClock, kClock == kNvmlSmClock ? "sm" : "memory", megahertz * kMega}};
}

Answer ReadEccErrors(const NvmlCalls& nvml, NvmlDevice device) {
  unsigned long long errors = 0;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetTotalEccErrors, device, kNvmlUncorrected, kNvmlVolatile,
                           &errors);
  return Samples{{GpuFigure::kEccErrors, "", static_cast<double>(errors)}};
}

Answer ReadThrottleReasons(const NvmlCalls& nvml, NvmlDevice device) {
  unsigned long long reasons = 0;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetCurrentClocksThrottleReasons, device, &reasons);
  Samples samples;
  for (size_t bit = 0; bit < std::size(kThrottleReasons); ++bit) {
    samples.push_back({GpuFigure::kThrottleReason, kThrottleReasons[bit],
                       static_cast<double>(reasons >> bit & 1)});
  }
  return samples;
}

template <unsigned kField>
Answer ReadLink(const NvmlCalls& nvml, NvmlDevice device) {
  NvmlField field = {};
  field.field = kField;
  field.scope = kNvmlAllLinks;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetFieldValues, device, 1, &field);
  if (field.result != kNvmlSuccess) return Failed(nvml, "nvmlDeviceGetFieldValues", field.result);
  if (field.type != kNvmlUnsignedLongLong) {
    return absl::UnavailableError(
        absl::StrCat("nvmlDeviceGetFieldValues answers with a value of type ", field.type));
  }
  return Samples{{GpuFigure::kLinkBytes, kField == kNvmlLinkTx ? "tx" : "rx",
                  static_cast<double>(field.value.whole) * kKibi}};
}

template <int kDirection>
Answer ReadPcie(const NvmlCalls& nvml, NvmlDevice device) {
  unsigned kilobytes = 0;
  SHERD_RETURN_UNLESS_READ(nvmlDeviceGetPcieThroughput, device, kDirection, &kilobytes);
  return Samples{
      {GpuFigure::kPcieBytesASecond, kDirection == kNvmlPcieTx ? "tx" : "rx", kilobytes * kKilo}};
}

#undef SHERD_RETURN_UNLESS_READ

struct Reading {
  const char* call;
  bool (*there)(const NvmlCalls& nvml);
  Answer (*read)(const NvmlCalls& nvml, NvmlDevice device);
};

#define SHERD_READING(call, read)                                           \
  Reading {                                                                 \
#call, [](const NvmlCalls& nvml) { return nvml.call != nullptr; }, read \
  }

// Those of PCIe traffic last: each watches it for 20 ms.
constexpr auto kReadings = std::array{
    SHERD_READING(nvmlDeviceGetUtilizationRates, ReadUtilization),
    SHERD_READING(nvmlDeviceGetMemoryInfo, ReadMemory),
    SHERD_READING(nvmlDeviceGetComputeRunningProcesses_v3, ReadProcess),
    SHERD_READING(nvmlDeviceGetPowerUsage, ReadPower),
    SHERD_READING(nvmlDeviceGetTemperature, ReadTemperature),
    SHERD_READING(nvmlDeviceGetClockInfo, ReadClock<kNvmlSmClock>),
    SHERD_READING(nvmlDeviceGetClockInfo, ReadClock<kNvmlMemoryClock>),
    SHERD_READING(nvmlDeviceGetTotalEccErrors, ReadEccErrors),
    SHERD_READING(nvmlDeviceGetCurrentClocksThrottleReasons, ReadThrottleReasons),
    SHERD_READING(nvmlDeviceGetFieldValues, ReadLink<kNvmlLinkTx>),
    SHERD_READING(nvmlDeviceGetFieldValues, ReadLink<kNvmlLinkRx>),
    SHERD_READING(nvmlDeviceGetPcieThroughput, ReadPcie<kNvmlPcieTx>),
    SHERD_READING(nvmlDeviceGetPcieThroughput, ReadPcie<kNvmlPcieRx>),
};
#undef SHERD_READING

absl::StatusOr<NvmlCalls> FindCalls(const std::string& library) {
  // Never closed: what it started may be running.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(::dlerror());
  NvmlCalls found;
#define SHERD_NVML_FIND(name, ...) \
  found.name = reinterpret_cast<decltype(found.name)>(::dlsym(handle, #name));
  SHERD_NVML_NEEDED_CALLS(SHERD_NVML_FIND)
  SHERD_NVML_READING_CALLS(SHERD_NVML_FIND)
#undef SHERD_NVML_FIND
  std::vector<std::string> missing;
#define SHERD_NVML_MISSING(name, ...) \
  if (found.name == nullptr) missing.emplace_back(#name);
  SHERD_NVML_NEEDED_CALLS(SHERD_NVML_MISSING)
#undef SHERD_NVML_MISSING
  if (!missing.empty()) {
    return absl::UnavailableError(absl::StrCat(library, " has no ", absl::StrJoin(missing, ", ")));
  }
  return found;
}

}  // namespace

GpuReadings::GpuReadings(const NvmlCalls& calls, NvmlDevice device, std::string uuid)
    : calls_(calls), device_(device), uuid_(std::move(uuid)) {}

absl::StatusOr<std::unique_ptr<GpuReadings>> GpuReadings::Open(const std::string& library,
                                                               const std::string& pci_address) {
  SHERD_ASSIGN_OR_RETURN(const NvmlCalls nvml, FindCalls(library));
  NvmlResult result = nvml.nvmlInit_v2();
  if (result != kNvmlSuccess) return Failed(nvml, "nvmlInit_v2", result);
  NvmlDevice device = nullptr;
  result = nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_address.c_str(), &device);
  if (result != kNvmlSuccess) {
    return Failed(nvml, absl::StrCat("nvmlDeviceGetHandleByPciBusId_v2(", pci_address, ")"),
                  result);
  }
  std::array<char, kUuidLength> uuid = {};
  result = nvml.nvmlDeviceGetUUID(device, uuid.data(), kUuidLength);
  if (result != kNvmlSuccess) return Failed(nvml, "nvmlDeviceGetUUID", result);
  return std::unique_ptr<GpuReadings>(new GpuReadings(nvml, device, uuid.data()));
}

size_t GpuReadings::count() { return kReadings.size(); }

absl::string_view GpuReadings::NameOf(size_t reading) { return kReadings[reading].call; }

absl::StatusOr<std::vector<GpuSample>> GpuReadings::Read(size_t reading) const {
  if (!kReadings[reading].there(calls_)) {
    return absl::UnavailableError(absl::StrCat("this driver has no ", kReadings[reading].call));
  }
  return kReadings[reading].read(calls_, device_);
}

}  // namespace sherd
