#pragma once

#include <memory>
#include <string>
#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "worker/device/gpu_watch.h"

namespace sherd {

// A GPU's series, labelled with device and uuid: read when they are asked for, by a watch that
// keeps nobody waiting. Thread-safe.
class GpuMetrics final : public prometheus::Collectable {
 public:
  // `device`: the worker's name for it, "cuda:0".
  GpuMetrics(std::string device, GpuWatch::Options options);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string device_;
  const std::unique_ptr<GpuWatch> watch_;
};

}  // namespace sherd
