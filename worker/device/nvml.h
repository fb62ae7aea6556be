#pragma once

#include <type_traits>

// What nvml.h declares of the calls that are used, under the same names: the header comes with the
// CUDA toolkit, and a build does without. The library's interface is stable; a call whose
// structures changed got another name.

struct nvmlDevice_st;

namespace sherd {

using NvmlDevice = nvmlDevice_st*;
// An nvmlReturn_t.
using NvmlResult = int;
inline constexpr NvmlResult kNvmlSuccess = 0;
inline constexpr NvmlResult kNvmlInsufficientSize = 7;

// Percent of the last sample period, which is up to a second.
struct NvmlUtilization {
  unsigned gpu, memory;
};
// Bytes; what is used includes what the driver keeps for itself.
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kNvmlNotAvailable = ~0ULL;
// A numbered value, with an answer of its own.
struct NvmlField {
  unsigned field, scope;
  long long timestamp, latency;
  int type;
  NvmlResult result;
  union {
    double real;
    unsigned long long whole;
  } value;
};
static_assert(sizeof(NvmlProcess) == 24 && sizeof(NvmlField) == 40);

// Of an nvmlValueType_t.
inline constexpr int kNvmlUnsignedLongLong = 3;
inline constexpr int kNvmlGpuTemperature = 0;
inline constexpr int kNvmlSmClock = 1;
inline constexpr int kNvmlMemoryClock = 2;
inline constexpr int kNvmlUncorrected = 1;
// Since the driver was loaded.
inline constexpr int kNvmlVolatile = 0;
inline constexpr int kNvmlPcieTx = 0;
inline constexpr int kNvmlPcieRx = 1;
// KiB of payload since the driver was loaded; scope kNvmlAllLinks adds up the links.
inline constexpr unsigned kNvmlLinkTx = 138;
inline constexpr unsigned kNvmlLinkRx = 139;
inline constexpr unsigned kNvmlAllLinks = ~0U;

// V(name, type) of every call. Without the first ones nothing can be read; drivers that lack one of
// the others lack what it reads.
#define SHERD_NVML_NEEDED_CALLS(V)                                          \
  V(nvmlInit_v2, NvmlResult())                                              \
  V(nvmlErrorString, const char*(NvmlResult))                               \
  V(nvmlDeviceGetHandleByPciBusId_v2, NvmlResult(const char*, NvmlDevice*)) \
  V(nvmlDeviceGetUUID, NvmlResult(NvmlDevice, char*, unsigned))
#define SHERD_NVML_READING_CALLS(V)                                                           \
  V(nvmlDeviceGetUtilizationRates, NvmlResult(NvmlDevice, NvmlUtilization*))                  \
  V(nvmlDeviceGetMemoryInfo, NvmlResult(NvmlDevice, NvmlMemory*))                             \
  V(nvmlDeviceGetComputeRunningProcesses_v3, NvmlResult(NvmlDevice, unsigned*, NvmlProcess*)) \
  V(nvmlDeviceGetPowerUsage, NvmlResult(NvmlDevice, unsigned*))                               \
  V(nvmlDeviceGetTemperature, NvmlResult(NvmlDevice, int, unsigned*))                         \
  V(nvmlDeviceGetClockInfo, NvmlResult(NvmlDevice, int, unsigned*))                           \
  V(nvmlDeviceGetTotalEccErrors, NvmlResult(NvmlDevice, int, int, unsigned long long*))       \
  V(nvmlDeviceGetCurrentClocksThrottleReasons, NvmlResult(NvmlDevice, unsigned long long*))   \
  V(nvmlDeviceGetFieldValues, NvmlResult(NvmlDevice, int, NvmlField*))                        \
  V(nvmlDeviceGetPcieThroughput, NvmlResult(NvmlDevice, int, unsigned*))

// Found in the library; null: not there.
struct NvmlCalls {
#define SHERD_NVML_DECLARE(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  SHERD_NVML_NEEDED_CALLS(SHERD_NVML_DECLARE)
  SHERD_NVML_READING_CALLS(SHERD_NVML_DECLARE)
#undef SHERD_NVML_DECLARE
};

}  // namespace sherd
