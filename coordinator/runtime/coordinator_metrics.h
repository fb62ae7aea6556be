#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/ids.h"
#include "coordinator/runtime/journal.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/registry.h"

namespace sherd {

// The coordinator's series in `registry`. Update on one thread.
class CoordinatorMetrics {
 public:
  explicit CoordinatorMetrics(prometheus::Registry& registry);
  CoordinatorMetrics(const CoordinatorMetrics&) = delete;

  // Brings all series up to date. Series of jobs that have ended are removed (F58).
  void Update(const Journal& journal, int64_t sessions);
  void SetQueueDepth(int64_t commands) { queue_depth_.Set(static_cast<double>(commands)); }

 private:
  struct JobSeries {
    prometheus::Gauge* info;
    prometheus::Gauge* step;
    prometheus::Gauge* loss;
    prometheus::Gauge* world;
  };

  void UpdateJob(const JobRecord& job, const Progress& progress);
  void RemoveJob(const JobSeries& series);

  prometheus::Family<prometheus::Gauge>& jobs_;
  prometheus::Family<prometheus::Gauge>& workers_;
  prometheus::Gauge& sessions_;
  prometheus::Gauge& queue_depth_;
  prometheus::Counter& appends_;
  prometheus::Family<prometheus::Gauge>& job_info_;
  prometheus::Family<prometheus::Gauge>& job_step_;
  prometheus::Family<prometheus::Gauge>& job_loss_;
  prometheus::Family<prometheus::Gauge>& job_world_;
  std::map<std::string, prometheus::Gauge*> jobs_by_state_;
  std::map<std::string, prometheus::Gauge*> workers_by_status_;
  std::map<JobId, JobSeries> series_;
};

}  // namespace sherd
