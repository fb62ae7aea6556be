#include "coordinator/runtime/coordinator_metrics.h"

#include "coordinator/runtime/views.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry,
                                              const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Counter>& LostWorkers(prometheus::Registry& registry) {
  return prometheus::BuildCounter()
      .Name("sherd_workers_lost_total")
      .Help("Workers lost since the start: silent for longer than the failure detection, or ended.")
      .Register(registry);
}

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(prometheus::Registry& registry)
    : jobs_(Gauges(registry, "sherd_jobs", "Jobs by state.")),
      workers_(Gauges(registry, "sherd_workers", "Workers by status.")),
      sessions_(Gauges(registry, "sherd_sessions", "Open worker streams.").Add({})),
      queue_depth_(
          Gauges(registry, "sherd_event_queue_depth", "Commands that wait for the event loop.")
              .Add({})),
      appends_(prometheus::BuildCounter()
                   .Name("sherd_event_log_appends_total")
                   .Help("Durable events appended since the start.")
                   .Register(registry)
                   .Add({})),
      silent_workers_(LostWorkers(registry).Add({{"how", "silent"}})),
      ended_workers_(LostWorkers(registry).Add({{"how", "ended"}})),
      job_metrics_(registry) {
  for (int number = v1::JOB_STATE_QUEUED; number <= v1::JOB_STATE_CANCELLED; ++number) {
    const std::string state(NameOf(static_cast<v1::JobState>(number)));
    jobs_by_state_[state] = &jobs_.Add({{"state", state}});
  }
  for (const char* status : {"idle", "busy", "draining", "drained", "lost"}) {
    workers_by_status_[status] = &workers_.Add({{"status", status}});
  }
}

void CoordinatorMetrics::Observe(const v1::DurableEvent& event) {
  if (!event.has_worker_lost()) return;
  (event.worker_lost().silent_ms() > 0 ? silent_workers_ : ended_workers_).Increment();
}

void CoordinatorMetrics::Update(const Journal& journal, int64_t sessions, absl::Time now) {
  std::map<std::string, int64_t> by_state;
  for (const auto& [id, job] : journal.state().jobs) {
    ++by_state[std::string(NameOf(job.state))];
    job_metrics_.Update(job, journal.feed().ProgressOf(id), now);
  }
  for (const auto& [state, gauge] : jobs_by_state_) {
    gauge->Set(static_cast<double>(by_state[state]));
  }
  std::map<std::string, int64_t> by_status;
  for (const auto& [id, worker] : journal.state().workers) {
    ++by_status[std::string(StatusOf(worker))];
  }
  for (const auto& [status, gauge] : workers_by_status_) {
    gauge->Set(static_cast<double>(by_status[status]));
  }
  sessions_.Set(static_cast<double>(sessions));
  appends_.Increment(static_cast<double>(journal.appended()) - appends_.Value());
}

}  // namespace sherd
