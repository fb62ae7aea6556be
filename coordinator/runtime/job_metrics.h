#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/ids.h"
#include "coordinator/core/state.h"
#include "coordinator/runtime/job_feed.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace sherd {

// The series about jobs: how far each is, how well it is protected, what deaths cost. One thread.
class JobMetrics {
 public:
  explicit JobMetrics(prometheus::Registry& registry);
  JobMetrics(const JobMetrics&) = delete;

  // Counts what is published to a job's feed.
  void Observe(const v1::JobEvent& entry);
  // Brings a job's series up to date; those of one that has ended are removed (F58).
  void Update(const JobRecord& job, const Progress& progress, absl::Time now);

 private:
  struct Series {
    prometheus::Gauge* info = nullptr;
    prometheus::Gauge* step = nullptr;
    prometheus::Gauge* loss = nullptr;
    prometheus::Gauge* world = nullptr;
    prometheus::Gauge* copies = nullptr;
    prometheus::Gauge* wanted_copies = nullptr;
    prometheus::Gauge* goodput = nullptr;
    // Present from the first checkpoint on.
    prometheus::Gauge* checkpoint_age = nullptr;
    Epoch epoch;
  };
  // Time of a job's steps that were not lost again. Of many steps few points are kept: a rollback
  // goes back to about the time that the steps before it took.
  class StepTime {
   public:
    void Add(int64_t step, double seconds);
    void RollBack(int64_t to_step);
    double seconds() const { return by_step_.empty() ? 0 : by_step_.rbegin()->second; }

   private:
    // Until the end of a step, since before the first one that was seen.
    std::map<int64_t, double> by_step_;
  };
  // What feeds tell between two updates.
  struct Account {
    // When it was first seen to run.
    absl::Time running_since = absl::InfiniteFuture();
    StepTime steps;
    absl::Time last_checkpoint = absl::InfinitePast();
  };

  Series& SeriesOf(const JobRecord& job);
  void Remove(const JobId& id);

  prometheus::Family<prometheus::Gauge>& info_;
  prometheus::Family<prometheus::Gauge>& step_;
  prometheus::Family<prometheus::Gauge>& loss_;
  prometheus::Family<prometheus::Gauge>& world_;
  prometheus::Family<prometheus::Gauge>& copies_;
  prometheus::Family<prometheus::Gauge>& wanted_copies_;
  prometheus::Family<prometheus::Gauge>& goodput_;
  prometheus::Family<prometheus::Gauge>& checkpoint_age_;
  prometheus::Family<prometheus::Counter>& restarts_;
  prometheus::Family<prometheus::Histogram>& recovery_seconds_;
  prometheus::Family<prometheus::Counter>& warnings_;
  prometheus::Histogram& checkpoint_seconds_;
  prometheus::Counter& rolled_back_steps_;
  std::map<JobId, Series> series_;
  std::map<JobId, Account> accounts_;
};

}  // namespace sherd
