#include "worker/device/gpu_metrics.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/worker/device/nvml_stand_in.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kGiB = 1 << 30;
constexpr char kUuid[] = "GPU-5dab0000-0000-0000-0000-000000000001";

using Values = std::map<std::string, double>;

// What the stand-in's GPU tells, without the labels that all series have; by the call.
const std::map<std::string, Values>& ByCall() {
  static const auto* const values = new std::map<std::string, Values>{
      {"nvmlDeviceGetUtilizationRates",
       {{"sherd_gpu_utilization_ratio", 0.83}, {"sherd_gpu_memory_utilization_ratio", 0.41}}},
      {"nvmlDeviceGetMemoryInfo",
       {{"sherd_gpu_memory_bytes", 80 * kGiB}, {"sherd_gpu_memory_used_bytes", 10 * kGiB}}},
      {"nvmlDeviceGetComputeRunningProcesses_v3", {{"sherd_gpu_process_memory_bytes", 5 * kGiB}}},
      {"nvmlDeviceGetPowerUsage", {{"sherd_gpu_power_watts", 351.5}}},
      {"nvmlDeviceGetTemperature", {{"sherd_gpu_temperature_celsius", 64}}},
      {"nvmlDeviceGetClockInfo",
       {{"sherd_gpu_clock_hertz clock=sm", 1.98e9},
        {"sherd_gpu_clock_hertz clock=memory", 2.619e9}}},
      {"nvmlDeviceGetTotalEccErrors", {{"sherd_gpu_ecc_uncorrected_errors_total", 2}}},
      {"nvmlDeviceGetCurrentClocksThrottleReasons",
       {{"sherd_gpu_throttle_reason reason=idle", 0},
        {"sherd_gpu_throttle_reason reason=application_clocks", 0},
        {"sherd_gpu_throttle_reason reason=power_cap", 1},
        {"sherd_gpu_throttle_reason reason=hardware_slowdown", 0},
        {"sherd_gpu_throttle_reason reason=sync_boost", 0},
        {"sherd_gpu_throttle_reason reason=software_thermal", 0},
        {"sherd_gpu_throttle_reason reason=hardware_thermal", 1},
        {"sherd_gpu_throttle_reason reason=hardware_power_brake", 0},
        {"sherd_gpu_throttle_reason reason=display_clocks", 0}}},
      {"nvmlDeviceGetFieldValues",
       {{"sherd_gpu_nvlink_bytes_total direction=tx", 5000 * 1024},
        {"sherd_gpu_nvlink_bytes_total direction=rx", 6000 * 1024}}},
      {"nvmlDeviceGetPcieThroughput",
       {{"sherd_gpu_pcie_bytes_per_second direction=tx", 7e5},
        {"sherd_gpu_pcie_bytes_per_second direction=rx", 8e5}}}};
  return *values;
}
// All of them, but for those of one call.
Values AllBut(const std::string& left_out) {
  Values values;
  for (const auto& [call, of_call] : ByCall()) {
    if (call != left_out) values.insert(of_call.begin(), of_call.end());
  }
  return values;
}
Values All() { return AllBut(""); }

class GpuMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const library = dlopen(SHERD_TEST_NVML_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    script_ = reinterpret_cast<NvmlStandInScript>(dlsym(library, kNvmlStandInScript))();
    for (const auto& [call, values] : ByCall()) script_->Answer(call, 0);
    script_->Answer("nvmlInit_v2", 0);
    script_->HideProcess(false);
  }

  // With a limit that no answer needs, unless a call is held.
  GpuWatch::Options Options(absl::Duration limit = absl::Minutes(2)) {
    return {.library = SHERD_TEST_NVML_LIBRARY,
            .pci_address = kNvmlStandInAddress,
            .limit = limit,
            .lifetime = absl::Seconds(30),
            .now = [this] {
              return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds_));
            }};
  }

  NvmlScript* script_ = nullptr;
  std::atomic<int> seconds_{0};
};

Values ValuesOf(const GpuMetrics& metrics) {
  Values values;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    EXPECT_NE(family.help, "");
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string name = family.name;
      for (const prometheus::ClientMetric::Label& label : metric.label) {
        if (label.name == "device") {
          EXPECT_EQ(label.value, "cuda:0");
        } else if (label.name == "uuid") {
          EXPECT_EQ(label.value, kUuid);
        } else {
          absl::StrAppend(&name, " ", label.name, "=", label.value);
        }
      }
      const bool counter = absl::EndsWith(family.name, "_total");
      EXPECT_EQ(family.type,
                counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge);
      values[name] = counter ? metric.counter.value : metric.gauge.value;
    }
  }
  return values;
}

// Sooner or later.
bool TellsAll(const GpuMetrics& metrics) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (ValuesOf(metrics) != All()) {
    if (absl::Now() > deadline) return false;
  }
  return true;
}

// Lines of the log about readings, without what each begins with.
std::vector<std::string> Lines(const std::string& log, const std::string& about) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    const size_t at = line.find(about);
    if (at != absl::string_view::npos) lines.emplace_back(line.substr(at));
  }
  return lines;
}

TEST_F(GpuMetricsTest, EverythingThatNvmlTellsIsASeries) {
  const GpuMetrics metrics("cuda:0", Options());
  EXPECT_EQ(ValuesOf(metrics), All());
}

TEST_F(GpuMetricsTest, ACallThatFailsTakesItsOwnSeriesAloneAndIsToldOnce) {
  for (const auto& [call, values] : ByCall()) {
    ::testing::internal::CaptureStderr();
    {
      const GpuMetrics metrics("cuda:0", Options());
      EXPECT_EQ(ValuesOf(metrics), All());
      script_->Answer(call, 3);
      EXPECT_EQ(ValuesOf(metrics), AllBut(call));
      EXPECT_EQ(ValuesOf(metrics), AllBut(call));
      script_->Answer(call, 0);
      EXPECT_EQ(ValuesOf(metrics), All());
    }
    const std::vector<std::string> lines =
        Lines(::testing::internal::GetCapturedStderr(), "a reading of the GPU is left out: ");
    const std::string line =
        absl::StrCat("a reading of the GPU is left out: ", call, " failed: Not Supported (3)");
    // Two readings are by the same call.
    EXPECT_LE(lines.size(), 2u) << call;
    ASSERT_FALSE(lines.empty()) << call;
    for (const std::string& each : lines) EXPECT_EQ(each, line);
  }
}

TEST_F(GpuMetricsTest, ACallThatHangsKeepsNobodyWaitingAndOldValuesAreNotTold) {
  for (const auto& [call, values] : ByCall()) {
    const GpuMetrics metrics("cuda:0", Options(absl::Milliseconds(10)));
    ASSERT_TRUE(TellsAll(metrics));
    script_->Hold(call);
    ValuesOf(metrics);
    script_->WaitUntilHeld();
    EXPECT_EQ(ValuesOf(metrics), All()) << call;
    seconds_ += 29;
    EXPECT_EQ(ValuesOf(metrics), All()) << call;
    seconds_ += 2;
    EXPECT_THAT(ValuesOf(metrics), IsEmpty()) << call;
    script_->Release();
    ASSERT_TRUE(TellsAll(metrics));
  }
}

TEST_F(GpuMetricsTest, ADriverThatTakesLongToStartKeepsNobodyWaiting) {
  script_->Hold("nvmlInit_v2");
  const GpuMetrics metrics("cuda:0", Options(absl::Milliseconds(10)));
  script_->WaitUntilHeld();
  EXPECT_THAT(ValuesOf(metrics), IsEmpty());
  script_->Release();
  EXPECT_TRUE(TellsAll(metrics));
}

TEST_F(GpuMetricsTest, WithoutTheLibraryThereIsOneLineAndNoSeries) {
  ::testing::internal::CaptureStderr();
  {
    GpuWatch::Options options = Options();
    options.library = "libnone-such.so.1";
    const GpuMetrics metrics("cuda:0", std::move(options));
    EXPECT_THAT(ValuesOf(metrics), IsEmpty());
    EXPECT_THAT(ValuesOf(metrics), IsEmpty());
  }
  EXPECT_THAT(Lines(::testing::internal::GetCapturedStderr(), "GPU"),
              ElementsAre("GPU: libnone-such.so.1: cannot open shared object file: No such file or "
                          "directory"));
}

TEST_F(GpuMetricsTest, WhatKeepsAllFromBeingReadIsSaid) {
  const auto said = [](GpuWatch::Options options) {
    ::testing::internal::CaptureStderr();
    {
      const GpuMetrics metrics("cuda:0", std::move(options));
      EXPECT_THAT(ValuesOf(metrics), IsEmpty());
    }
    return absl::StrJoin(
        Lines(::testing::internal::GetCapturedStderr(), "no readings of the GPU: "), "\n");
  };
  GpuWatch::Options elsewhere = Options();
  elsewhere.pci_address = "0000:01:00.0";
  EXPECT_EQ(said(std::move(elsewhere)),
            "no readings of the GPU: nvmlDeviceGetHandleByPciBusId_v2(0000:01:00.0) failed: "
            "Unknown Error (6)");
  script_->Answer("nvmlInit_v2", 9);
  EXPECT_EQ(said(Options()), "no readings of the GPU: nvmlInit_v2 failed: Unknown Error (9)");
  Dl_info other;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&dlopen), &other), 0);
  GpuWatch::Options none = Options();
  none.library = other.dli_fname;
  EXPECT_THAT(said(std::move(none)),
              HasSubstr(" has no nvmlInit_v2, nvmlErrorString, nvmlDeviceGetHandleByPciBusId_v2, "
                        "nvmlDeviceGetUUID"));
}

TEST_F(GpuMetricsTest, NobodysMemoryIsTakenForThatOfAProcessWhichTheDriverKnowsByAnotherNumber) {
  script_->HideProcess(true);
  ::testing::internal::CaptureStderr();
  {
    const GpuMetrics metrics("cuda:0", Options());
    EXPECT_EQ(ValuesOf(metrics), AllBut("nvmlDeviceGetComputeRunningProcesses_v3"));
    EXPECT_EQ(ValuesOf(metrics), AllBut("nvmlDeviceGetComputeRunningProcesses_v3"));
  }
  EXPECT_THAT(
      Lines(::testing::internal::GetCapturedStderr(), "a reading of the GPU"),
      ElementsAre("a reading of the GPU is left out: nvmlDeviceGetComputeRunningProcesses_v3 "
                  "does not tell this process's memory"));
}

TEST_F(GpuMetricsTest, WhatAnOldDriverDoesNotKnowIsLeftOut) {
  ::testing::internal::CaptureStderr();
  {
    GpuWatch::Options options = Options();
    options.library = SHERD_TEST_OLD_NVML_LIBRARY;
    const GpuMetrics metrics("cuda:0", std::move(options));
    EXPECT_EQ(ValuesOf(metrics), AllBut("nvmlDeviceGetFieldValues"));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("is left out: this driver has no nvmlDeviceGetFieldValues"));
}

}  // namespace
}  // namespace sherd
