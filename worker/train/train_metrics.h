#pragma once

#include <string>
#include <vector>

#include "kernels/memory.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "worker/comm/communicator.h"
#include "worker/train/step_commits.h"
#include "worker/train/step_executor.h"

namespace sherd {

// A rank's series in a worker's registry, labelled with job and rank; gone when destroyed, so an
// ended job leaves none behind. Not thread-safe; scrapes may run at any time.
class TrainMetrics {
 public:
  TrainMetrics(prometheus::Registry& registry, const std::string& job, const std::string& job_name,
               const std::string& strategy, int rank);
  ~TrainMetrics();
  TrainMetrics(const TrainMetrics&) = delete;

  void RecordStep(const StepFigures& figures, double seconds, int64_t step, double learning_rate);
  void RecordPhases(const PhaseSeconds& phases);
  void RecordMemory(const MemoryMeter& meter);
  // Totals so far.
  void RecordWire(const GroupCounts& counts);
  void RecordCopies(const CopyCosts& costs);

 private:
  template <typename T>
  struct Series {
    prometheus::Family<T>* family;
    T* metric;
  };
  Series<prometheus::Gauge> AddGauge(const char* name, const char* help,
                                     std::map<std::string, std::string> labels = {});
  Series<prometheus::Counter> AddCounter(const char* name, const char* help,
                                         std::map<std::string, std::string> labels = {});

  prometheus::Registry& registry_;
  const std::map<std::string, std::string> labels_;
  std::vector<Series<prometheus::Gauge>> gauges_;
  std::vector<Series<prometheus::Counter>> counters_;
  Series<prometheus::Histogram> step_seconds_;
  prometheus::Gauge* step_;
  prometheus::Gauge* loss_;
  prometheus::Gauge* grad_norm_;
  prometheus::Gauge* learning_rate_;
  prometheus::Counter* tokens_;
  std::vector<prometheus::Counter*> phases_;
  std::vector<prometheus::Gauge*> memory_;
  std::vector<prometheus::Gauge*> memory_peak_;
  // Of one collective in one group; made when the first bytes are sent.
  struct WireSeries {
    prometheus::Counter* bytes = nullptr;
    prometheus::Counter* messages = nullptr;
    prometheus::Counter* seconds = nullptr;
  };
  WireSeries AddWire(Collective op, WireGroup group);

  std::map<std::pair<size_t, size_t>, WireSeries> wire_;
  // Of copies on other hosts; made with the first of them.
  struct CopySeries {
    prometheus::Counter* bytes = nullptr;
    prometheus::Counter* seconds = nullptr;
    prometheus::Counter* waiting = nullptr;
  };
  CopySeries copies_;
};

}  // namespace sherd
