#include "coordinator/runtime/coordinator_metrics.h"

#include "coordinator/runtime/views.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry,
                                              const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
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
      job_info_(Gauges(registry, "sherd_job_info", "Jobs that have not ended; the value is 1.")),
      job_step_(Gauges(registry, "sherd_job_step", "Last completed step.")),
      job_loss_(Gauges(registry, "sherd_job_loss", "Loss of the last step, nats a token.")),
      job_world_(Gauges(registry, "sherd_job_world", "Ranks of the current epoch.")) {
  for (int number = v1::JOB_STATE_QUEUED; number <= v1::JOB_STATE_CANCELLED; ++number) {
    const std::string state(NameOf(static_cast<v1::JobState>(number)));
    jobs_by_state_[state] = &jobs_.Add({{"state", state}});
  }
  for (const char* status : {"idle", "busy", "draining", "lost"}) {
    workers_by_status_[status] = &workers_.Add({{"status", status}});
  }
}

void CoordinatorMetrics::Update(const Journal& journal, int64_t sessions) {
  std::map<std::string, int64_t> by_state;
  for (const auto& [id, job] : journal.state().jobs) {
    ++by_state[std::string(NameOf(job.state))];
    UpdateJob(job, journal.feed().ProgressOf(id));
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

void CoordinatorMetrics::UpdateJob(const JobRecord& job, const Progress& progress) {
  const auto found = series_.find(job.id);
  if (IsTerminal(job.state)) {
    if (found == series_.end()) return;
    RemoveJob(found->second);
    series_.erase(found);
    return;
  }
  if (found == series_.end()) {
    const prometheus::Labels label = {{"job", job.id.value()}};
    series_[job.id] = {
        &job_info_.Add({{"job", job.id.value()},
                        {"name", job.spec.name()},
                        {"strategy", std::string(NameOf(job.spec.parallel().strategy()))}}),
        &job_step_.Add(label), &job_loss_.Add(label), &job_world_.Add(label)};
  }
  const JobSeries& series = series_.at(job.id);
  series.info->Set(1);
  series.step->Set(static_cast<double>(progress.step));
  series.loss->Set(progress.loss);
  series.world->Set(static_cast<double>(job.ranks.size()));
}

void CoordinatorMetrics::RemoveJob(const JobSeries& series) {
  job_info_.Remove(series.info);
  job_step_.Remove(series.step);
  job_loss_.Remove(series.loss);
  job_world_.Remove(series.world);
}

}  // namespace sherd
