#include "worker/device/gpu_metrics.h"

#include <utility>

#include "prometheus/client_metric.h"
#include "prometheus/metric_type.h"

namespace sherd {
namespace {

// A figure's series, and the label that tells several of them apart.
struct Series {
  GpuFigure figure;
  prometheus::MetricType type;
  const char* name;
  const char* help;
  const char* label;
};

Series AddGauge(const char* name, const char* help, GpuFigure figure, const char* label = "") {
  return {figure, prometheus::MetricType::Gauge, name, help, label};
}
Series AddCounter(const char* name, const char* help, GpuFigure figure, const char* label = "") {
  return {figure, prometheus::MetricType::Counter, name, help, label};
}

std::vector<Series> AllSeries() {
  return {
      AddGauge("sherd_gpu_utilization_ratio",
               "Share of the driver's last sample period, up to a second, in which the GPU ran "
               "something, whosever.",
               GpuFigure::kUtilization),
      AddGauge("sherd_gpu_memory_utilization_ratio",
               "Share of that period in which its memory was read or written.",
               GpuFigure::kMemoryUtilization),
      AddGauge("sherd_gpu_memory_bytes", "Memory of the GPU.", GpuFigure::kMemory),
      AddGauge("sherd_gpu_memory_used_bytes",
               "What of it is taken, by all processes and by the driver.", GpuFigure::kMemoryUsed),
      AddGauge("sherd_gpu_process_memory_bytes",
               "What of it the worker's process has taken, CUDA's own included; not told where the "
               "driver knows processes by other numbers than the container does.",
               GpuFigure::kProcessMemory),
      AddGauge("sherd_gpu_power_watts", "Power that the card draws.", GpuFigure::kPower),
      AddGauge("sherd_gpu_temperature_celsius", "Temperature of the GPU.", GpuFigure::kTemperature),
      AddGauge("sherd_gpu_clock_hertz",
               "Clock now: sm of the multiprocessors, memory of the memory.", GpuFigure::kClock,
               "clock"),
      AddCounter("sherd_gpu_ecc_uncorrected_errors_total",
                 "Memory errors that were found and not corrected, since the driver was loaded.",
                 GpuFigure::kEccErrors),
      AddGauge("sherd_gpu_throttle_reason",
               "1 while the clocks are below their highest for that reason.",
               GpuFigure::kThrottleReason, "reason"),
      AddCounter("sherd_gpu_nvlink_bytes_total",
                 "Payload over all of its NVLinks since the driver was loaded, sent (tx) and "
                 "received (rx).",
                 GpuFigure::kLinkBytes, "direction"),
      AddGauge("sherd_gpu_pcie_bytes_per_second",
               "Traffic over PCIe in 20 ms around the scrape, sent (tx) and received (rx).",
               GpuFigure::kPcieBytesASecond, "direction"),
  };
}

}  // namespace

GpuMetrics::GpuMetrics(std::string device, GpuWatch::Options options)
    : device_(std::move(device)), watch_(std::make_unique<GpuWatch>(std::move(options))) {}

std::vector<prometheus::MetricFamily> GpuMetrics::Collect() const {
  const GpuWatch::View view = watch_->Look();
  std::vector<prometheus::MetricFamily> families;
  for (const Series& series : AllSeries()) {
    prometheus::MetricFamily family;
    for (const GpuSample& sample : view.samples) {
      if (sample.figure != series.figure) continue;
      prometheus::ClientMetric metric;
      metric.label = {{"device", device_}, {"uuid", view.uuid}};
      if (!sample.which.empty()) {
        metric.label.push_back({series.label, std::string(sample.which)});
      }
      metric.gauge.value = metric.counter.value = sample.value;
      family.metric.push_back(std::move(metric));
    }
    if (family.metric.empty()) continue;
    family.name = series.name;
    family.help = series.help;
    family.type = series.type;
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace sherd
