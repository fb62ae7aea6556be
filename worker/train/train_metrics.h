#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/memory.h"
#include "plan/wire.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "sherd/v1/events.pb.h"
#include "worker/comm/communicator.h"
#include "worker/train/step_commits.h"
#include "worker/train/step_executor.h"

namespace sherd {

// A rank's series in a worker's registry, labelled with job and rank; gone when destroyed, so an
// ended job leaves none behind. Not thread-safe; scrapes may run at any time.
class TrainMetrics {
 public:
  // `transports`: what the bytes of each group move by.
  TrainMetrics(prometheus::Registry& registry, const std::string& job, const std::string& job_name,
               const std::string& strategy, int rank,
               const std::array<absl::string_view, kWireGroups>& transports);
  ~TrainMetrics();
  TrainMetrics(const TrainMetrics&) = delete;

  // What the rank is to hold, once.
  void RecordPrediction(const v1::RankLedger& ledger);
  // `flops`: floating-point operations of the step on this rank, without what is computed again
  // (plan/model_flops.h); `samples`: sequences of the step, over all ranks.
  void RecordStep(const StepFigures& figures, double seconds, int64_t step, double learning_rate,
                  double flops, int64_t samples);
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
  const std::array<absl::string_view, kWireGroups> transports_;
  std::vector<Series<prometheus::Gauge>> gauges_;
  std::vector<Series<prometheus::Counter>> counters_;
  Series<prometheus::Histogram> step_seconds_;
  prometheus::Gauge* step_;
  prometheus::Gauge* loss_;
  prometheus::Gauge* grad_norm_;
  prometheus::Gauge* learning_rate_;
  prometheus::Counter* tokens_;
  prometheus::Counter* samples_;
  prometheus::Counter* flops_;
  std::vector<prometheus::Counter*> phases_;
  std::vector<prometheus::Gauge*> memory_;
  std::vector<prometheus::Gauge*> memory_peak_;
  prometheus::Gauge* memory_peak_total_;
  // Of one collective in one group; made when the first bytes are sent.
  struct WireSeries {
    prometheus::Counter* bytes = nullptr;
    prometheus::Counter* messages = nullptr;
    Series<prometheus::Histogram> seconds = {};
    WireCount recorded = {};
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
