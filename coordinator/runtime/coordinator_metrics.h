#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "coordinator/runtime/job_metrics.h"
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
  void Update(const Journal& journal, int64_t sessions, absl::Time now);
  // Counts what is appended to the log.
  void Observe(const v1::DurableEvent& event);
  // Counts what is published to a job's feed.
  void Observe(const v1::JobEvent& entry) { job_metrics_.Observe(entry); }
  void SetQueueDepth(int64_t commands) { queue_depth_.Set(static_cast<double>(commands)); }

 private:
  prometheus::Family<prometheus::Gauge>& jobs_;
  prometheus::Family<prometheus::Gauge>& workers_;
  prometheus::Gauge& sessions_;
  prometheus::Gauge& queue_depth_;
  prometheus::Counter& appends_;
  prometheus::Counter& silent_workers_;
  prometheus::Counter& ended_workers_;
  JobMetrics job_metrics_;
  std::map<std::string, prometheus::Gauge*> jobs_by_state_;
  std::map<std::string, prometheus::Gauge*> workers_by_status_;
};

}  // namespace sherd
