#include "coordinator/runtime/job_metrics.h"

#include <algorithm>
#include <iterator>

#include "coordinator/core/copies.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

constexpr double kMillisecondsPerSecond = 1000;

prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry,
                                              const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

// From a memory copy on one host to a restore over a network.
prometheus::Histogram::BucketBoundaries Seconds() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
}

const char* NameOf(EndKind kind) {
  switch (kind) {
    case EndKind::kNone:
      return "none";
    case EndKind::kDeath:
      return "death";
    case EndKind::kSilence:
      return "silence";
    case EndKind::kLink:
      return "link";
    case EndKind::kFailure:
      return "failure";
    case EndKind::kHang:
      return "hang";
    case EndKind::kFormation:
      return "formation";
    case EndKind::kLeft:
      return "left";
    case EndKind::kPlan:
      return "plan";
  }
  return "";
}

}  // namespace

JobMetrics::JobMetrics(prometheus::Registry& registry)
    : info_(Gauges(registry, "sherd_job_info", "Jobs that have not ended; the value is 1.")),
      step_(Gauges(registry, "sherd_job_step",
                   "Last committed step; it goes back when steps are lost.")),
      loss_(Gauges(registry, "sherd_job_loss", "Loss of the last step, nats a token.")),
      world_(Gauges(registry, "sherd_job_world", "Ranks of the current epoch.")),
      copies_(Gauges(registry, "sherd_job_copies",
                     "Processes beside its own in which the rarest shard is stored.")),
      wanted_copies_(
          Gauges(registry, "sherd_job_wanted_copies", "What elastic.replicas asks for.")),
      goodput_(Gauges(registry, "sherd_job_goodput_ratio",
                      "Time of steps that were kept, over the time since the job first ran.")),
      checkpoint_age_(Gauges(registry, "sherd_job_checkpoint_age_seconds",
                             "Time since the job's last checkpoint was saved.")),
      restarts_(prometheus::BuildCounter()
                    .Name("sherd_job_restarts_total")
                    .Help("Epochs after a job's first one, by what ended the one before.")
                    .Register(registry)),
      recovery_seconds_(prometheus::BuildHistogram()
                            .Name("sherd_recovery_seconds")
                            .Help("Time from what ended an epoch to the next step, by phase.")
                            .Register(registry)),
      warnings_(prometheus::BuildCounter()
                    .Name("sherd_job_warnings_total")
                    .Help("Warnings in the feeds of jobs since the start, by kind; a checkpoint "
                          "that could not be saved counts as checkpoint.")
                    .Register(registry)),
      checkpoint_seconds_(prometheus::BuildHistogram()
                              .Name("sherd_checkpoint_seconds")
                              .Help("Time from a snapshot to the durable checkpoint.")
                              .Register(registry)
                              .Add({}, Seconds())),
      rolled_back_steps_(prometheus::BuildCounter()
                             .Name("sherd_rolled_back_steps_total")
                             .Help("Committed steps that were lost and trained again.")
                             .Register(registry)
                             .Add({})) {
  for (const char* kind : {"straggler", "replicas", "divergence", "numerics", "checkpoint"}) {
    warnings_.Add({{"kind", kind}});
  }
}

void JobMetrics::StepTime::Add(int64_t step, double seconds) {
  constexpr size_t kMostPoints = 1024;
  if (by_step_.empty()) by_step_[step - 1] = 0;
  by_step_[step] = by_step_.rbegin()->second + seconds;
  if (by_step_.size() <= kMostPoints) return;
  // Not the last, which is added to, nor the first, behind which nothing is known.
  bool every_second = false;
  const int64_t first = by_step_.begin()->first;
  std::erase_if(by_step_, [&](const auto& point) {
    if (point.first == first || point.first == step) return false;
    return every_second = !every_second;
  });
}

void JobMetrics::StepTime::RollBack(int64_t to_step) {
  const auto after = by_step_.upper_bound(to_step);
  if (after == by_step_.end()) return;
  double seconds = 0;
  if (after != by_step_.begin()) {
    const auto before = std::prev(after);
    const double part = static_cast<double>(to_step - before->first) /
                        static_cast<double>(after->first - before->first);
    seconds = before->second + part * (after->second - before->second);
  }
  by_step_.erase(after, by_step_.end());
  by_step_[to_step] = seconds;
}

void JobMetrics::Observe(const v1::JobEvent& entry) {
  Account& account = accounts_[JobId(entry.job_id())];
  const absl::Time time = absl::FromUnixMillis(entry.time_unix_ms());
  if (entry.has_state() && entry.state().state() == v1::JOB_STATE_RUNNING) {
    account.running_since = std::min(account.running_since, time);
  } else if (entry.has_step()) {
    // A coordinator that came back sees a job that runs.
    account.running_since = std::min(account.running_since, time);
    account.steps.Add(entry.step().step(),
                      std::max(0.0, entry.step().step_ms()) / kMillisecondsPerSecond);
  } else if (entry.has_rollback()) {
    const v1::Rollback& rollback = entry.rollback();
    account.steps.RollBack(rollback.to_step());
    rolled_back_steps_.Increment(
        static_cast<double>(std::max<int64_t>(0, rollback.from_step() - rollback.to_step())));
  } else if (entry.has_epoch()) {
    for (const auto& [phase, seconds] : entry.epoch().recovery_seconds()) {
      recovery_seconds_.Add({{"phase", phase}}, Seconds()).Observe(seconds);
    }
  } else if (entry.has_warning()) {
    warnings_.Add({{"kind", entry.warning().kind()}}).Increment();
  } else if (entry.has_checkpoint() && !entry.checkpoint().error().empty()) {
    warnings_.Add({{"kind", "checkpoint"}}).Increment();
  } else if (entry.has_checkpoint()) {
    account.last_checkpoint = time;
    checkpoint_seconds_.Observe(std::max(0.0, entry.checkpoint().seconds()));
  }
}

JobMetrics::Series& JobMetrics::SeriesOf(const JobRecord& job) {
  Series& series = series_[job.id];
  if (series.info != nullptr) return series;
  const prometheus::Labels label = {{"job", job.id.value()}};
  series.info = &info_.Add({{"job", job.id.value()},
                            {"name", job.spec.name()},
                            {"strategy", std::string(NameOf(job.spec.parallel().strategy()))}});
  series.step = &step_.Add(label);
  series.loss = &loss_.Add(label);
  series.world = &world_.Add(label);
  series.copies = &copies_.Add(label);
  series.wanted_copies = &wanted_copies_.Add(label);
  series.goodput = &goodput_.Add(label);
  // What an earlier life of the coordinator counted is not counted again.
  series.epoch = std::max(job.epoch, Epoch(1));
  return series;
}

void JobMetrics::Update(const JobRecord& job, const Progress& progress, absl::Time now) {
  if (IsTerminal(job.state)) return Remove(job.id);
  Series& series = SeriesOf(job);
  if (job.epoch > series.epoch) {
    restarts_.Add({{"reason", NameOf(job.end_kind)}})
        .Increment(static_cast<double>(job.epoch.value() - series.epoch.value()));
    series.epoch = job.epoch;
  }
  series.info->Set(1);
  series.step->Set(static_cast<double>(progress.step));
  series.loss->Set(progress.loss);
  series.world->Set(static_cast<double>(job.ranks.size()));
  series.copies->Set(job.ranks.empty() ? 0 : static_cast<double>(FewestCopies(job)));
  series.wanted_copies->Set(static_cast<double>(WantedCopies(job.spec)));
  const Account& account = accounts_[job.id];
  if (now > account.running_since) {
    const double wall = absl::ToDoubleSeconds(now - account.running_since);
    series.goodput->Set(std::min(1.0, account.steps.seconds() / wall));
  }
  if (account.last_checkpoint == absl::InfinitePast()) return;
  if (series.checkpoint_age == nullptr) {
    series.checkpoint_age = &checkpoint_age_.Add({{"job", job.id.value()}});
  }
  series.checkpoint_age->Set(absl::ToDoubleSeconds(now - account.last_checkpoint));
}

void JobMetrics::Remove(const JobId& id) {
  accounts_.erase(id);
  const auto found = series_.find(id);
  if (found == series_.end()) return;
  const Series& series = found->second;
  info_.Remove(series.info);
  step_.Remove(series.step);
  loss_.Remove(series.loss);
  world_.Remove(series.world);
  copies_.Remove(series.copies);
  wanted_copies_.Remove(series.wanted_copies);
  goodput_.Remove(series.goodput);
  if (series.checkpoint_age != nullptr) checkpoint_age_.Remove(series.checkpoint_age);
  series_.erase(found);
}

}  // namespace sherd
