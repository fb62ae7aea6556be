// A library that looks like NVML, with one GPU. With SHERD_TEST_OLD_NVML it is a driver's that does
// not know some calls.
#include "tests/worker/device/nvml_stand_in.h"

#include <unistd.h>

#include <cstdio>
#include <type_traits>

#include "worker/device/nvml.h"

namespace {

sherd::NvmlScript script;
nvmlDevice_st* const kDevice = reinterpret_cast<nvmlDevice_st*>(&script);

constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr unsigned long long kGiB = 1ULL << 30;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

sherd::NvmlScript* nvml_stand_in_script() { return &script; }

const char* nvmlErrorString(int result) {
  return result == kNotSupported ? "Not Supported" : "Unknown Error";
}

#define BEGIN()                                                 \
  if (const int result = script.Begin(__func__); result != 0) { \
    return result;                                              \
  }

int nvmlInit_v2() { return script.Begin(__func__); }

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, nvmlDevice_st** device) {
  BEGIN();
  if (std::string(address) != sherd::kNvmlStandInAddress) return kNotFound;
  *device = kDevice;
  return 0;
}

int nvmlDeviceGetUUID(nvmlDevice_st* device, char* uuid, unsigned length) {
  BEGIN();
  if (device != kDevice) return kInvalidArgument;
  std::snprintf(uuid, length, "GPU-5dab0000-0000-0000-0000-000000000001");
  return 0;
}

int nvmlDeviceGetUtilizationRates(nvmlDevice_st*, sherd::NvmlUtilization* share) {
  BEGIN();
  *share = {83, 41};
  return 0;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_st*, sherd::NvmlMemory* memory) {
  BEGIN();
  *memory = {80 * kGiB, 70 * kGiB, 10 * kGiB};
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_st*, unsigned* count,
                                            sherd::NvmlProcess* processes) {
  BEGIN();
  constexpr unsigned kNone = ~0U;
  // Of this process two parts of the GPU.
  const auto own = static_cast<unsigned>(getpid() + (script.hides_process() ? 1 : 0));
  const sherd::NvmlProcess all[] = {
      {1, 4 * kGiB, kNone, kNone},
      {own, 3 * kGiB, 0, 0},
      {own, 2 * kGiB, 1, 0},
  };
  const unsigned room = *count;
  *count = 3;
  if (room < *count) return sherd::kNvmlInsufficientSize;
  for (unsigned i = 0; i < *count; ++i) processes[i] = all[i];
  return 0;
}

int nvmlDeviceGetPowerUsage(nvmlDevice_st*, unsigned* milliwatts) {
  BEGIN();
  *milliwatts = 351'500;
  return 0;
}

int nvmlDeviceGetTemperature(nvmlDevice_st*, int sensor, unsigned* celsius) {
  BEGIN();
  if (sensor != sherd::kNvmlGpuTemperature) return kInvalidArgument;
  *celsius = 64;
  return 0;
}

int nvmlDeviceGetClockInfo(nvmlDevice_st*, int clock, unsigned* megahertz) {
  BEGIN();
  *megahertz = clock == sherd::kNvmlSmClock ? 1980 : 2619;
  return 0;
}

int nvmlDeviceGetTotalEccErrors(nvmlDevice_st*, int kind, int counter, unsigned long long* errors) {
  BEGIN();
  if (kind != sherd::kNvmlUncorrected || counter != sherd::kNvmlVolatile) return kInvalidArgument;
  *errors = 2;
  return 0;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_st*, unsigned long long* reasons) {
  BEGIN();
  *reasons = 0x44;
  return 0;
}

#ifndef SHERD_TEST_OLD_NVML
int nvmlDeviceGetFieldValues(nvmlDevice_st*, int count, sherd::NvmlField* fields) {
  BEGIN();
  for (int i = 0; i < count; ++i) {
    sherd::NvmlField& field = fields[i];
    field.type = sherd::kNvmlUnsignedLongLong;
    field.result = field.scope == sherd::kNvmlAllLinks ? 0 : kInvalidArgument;
    field.value.whole = field.field == sherd::kNvmlLinkTx ? 5000 : 6000;
  }
  return 0;
}
#endif

int nvmlDeviceGetPcieThroughput(nvmlDevice_st*, int direction, unsigned* kilobytes) {
  BEGIN();
  *kilobytes = direction == sherd::kNvmlPcieTx ? 700 : 800;
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop

#ifndef SHERD_TEST_OLD_NVML
#define SAME_TYPE(name, ...) \
  static_assert(std::is_same_v<decltype(&name), decltype(sherd::NvmlCalls::name)>);
SHERD_NVML_NEEDED_CALLS(SAME_TYPE)
SHERD_NVML_READING_CALLS(SAME_TYPE)
#endif
