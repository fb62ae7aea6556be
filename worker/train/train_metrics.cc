#include "worker/train/train_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

using Labels = std::map<std::string, std::string>;

Labels Merge(Labels labels, const Labels& more) {
  labels.insert(more.begin(), more.end());
  return labels;
}

// Counters only grow: sets one to a total that was counted elsewhere.
void RaiseTo(prometheus::Counter& counter, double total) {
  const double grown = total - counter.Value();
  if (grown > 0) counter.Increment(grown);
}

constexpr const char* kPhases[] = {"data", "forward", "backward", "exposed", "update"};

}  // namespace

TrainMetrics::Series<prometheus::Gauge> TrainMetrics::AddGauge(const char* name, const char* help,
                                                               Labels labels) {
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
  gauges_.push_back({&family, &family.Add(Merge(std::move(labels), labels_))});
  return gauges_.back();
}

TrainMetrics::Series<prometheus::Counter> TrainMetrics::AddCounter(const char* name,
                                                                   const char* help,
                                                                   Labels labels) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(registry_);
  counters_.push_back({&family, &family.Add(Merge(std::move(labels), labels_))});
  return counters_.back();
}

TrainMetrics::TrainMetrics(prometheus::Registry& registry, const std::string& job,
                           const std::string& job_name, const std::string& strategy, int rank,
                           const std::array<absl::string_view, kWireGroups>& transports)
    : registry_(registry),
      labels_{{"job", job}, {"rank", absl::StrCat(rank)}},
      transports_(transports) {
  AddGauge("sherd_job_info", "The job that this rank works for; the value is always 1.",
           {{"name", job_name}, {"strategy", strategy}})
      .metric->Set(1);
  step_ = AddGauge("sherd_step", "The last completed step.").metric;
  loss_ = AddGauge("sherd_loss", "Training loss of the last step, nats a token.").metric;
  grad_norm_ = AddGauge("sherd_grad_norm", "Global gradient norm before clipping.").metric;
  learning_rate_ = AddGauge("sherd_learning_rate", "Learning rate of the last step.").metric;
  tokens_ =
      AddCounter("sherd_tokens_total",
                 "Tokens trained on, over all ranks; those of steps that are trained again, again.")
          .metric;
  samples_ = AddCounter("sherd_samples_total", "Sequences trained on, over all ranks.").metric;
  flops_ = AddCounter("sherd_flops_total",
                      "Floating-point operations of this rank's forward and backward passes, "
                      "without what is computed again.")
               .metric;
  auto& steps = prometheus::BuildHistogram()
                    .Name("sherd_step_seconds")
                    .Help("Wall time of a step on this rank.")
                    .Register(registry_);
  step_seconds_ = {&steps, &steps.Add(labels_, prometheus::Histogram::BucketBoundaries{
                                                   0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
                                                   25, 60, 180, 600})};
  for (const char* phase : kPhases) {
    phases_.push_back(AddCounter("sherd_phase_seconds_total",
                                 "Time by phase; exposed is communication that computation did "
                                 "not hide.",
                                 {{"phase", phase}})
                          .metric);
  }
  memory_peak_total_ =
      AddGauge("sherd_memory_peak_bytes", "Largest so far, by pool; peak: of all at one moment.",
               {{"pool", "peak"}})
          .metric;
  for (int pool = 0; pool < kPools; ++pool) {
    const Labels label{{"pool", NameOf(static_cast<Pool>(pool))}};
    memory_.push_back(
        AddGauge("sherd_memory_bytes", "Model memory of the rank by pool.", label).metric);
    memory_peak_.push_back(AddGauge("sherd_memory_peak_bytes",
                                    "Largest so far, by pool; peak: of all at one moment.", label)
                               .metric);
  }
}

TrainMetrics::WireSeries TrainMetrics::AddWire(Collective op, WireGroup group) {
  const Labels label{{"op", std::string(NameOf(op))},
                     {"group", std::string(NameOf(group))},
                     {"transport", std::string(transports_[static_cast<size_t>(group)])}};
  auto& family = prometheus::BuildHistogram()
                     .Name("sherd_collective_seconds")
                     .Help(
                         "Time of a collective on the communication thread, waiting for other "
                         "ranks included.")
                     .Register(registry_);
  auto& seconds = family.Add(Merge(label, labels_), prometheus::Histogram::BucketBoundaries(
                                                        kCallSeconds.begin(), kCallSeconds.end()));
  return {
      AddCounter("sherd_collective_bytes_total", "Bytes sent to other ranks.", label).metric,
      AddCounter("sherd_collective_messages_total", "Messages sent to other ranks.", label).metric,
      {&family, &seconds}};
}

TrainMetrics::~TrainMetrics() {
  for (const auto& series : gauges_) series.family->Remove(series.metric);
  for (const auto& series : counters_) series.family->Remove(series.metric);
  for (const auto& [key, series] : wire_) series.seconds.family->Remove(series.seconds.metric);
  step_seconds_.family->Remove(step_seconds_.metric);
}

void TrainMetrics::RecordPrediction(const v1::RankLedger& ledger) {
  // Of both sides, as it is measured.
  std::map<std::string, int64_t> predicted;
  for (const auto* memory : {&ledger.memory(), &ledger.host_memory()}) {
    for (const auto& [pool, line] : *memory) predicted[pool] += line.predicted();
  }
  for (const auto& [pool, bytes] : predicted) {
    AddGauge("sherd_memory_predicted_bytes",
             "What the rank was predicted to hold at most, by pool; peak: of all at one moment.",
             {{"pool", pool}})
        .metric->Set(static_cast<double>(bytes));
  }
}

void TrainMetrics::RecordStep(const StepFigures& figures, double seconds, int64_t step,
                              double learning_rate, double flops, int64_t samples) {
  step_->Set(static_cast<double>(step));
  loss_->Set(figures.loss);
  grad_norm_->Set(figures.grad_norm);
  learning_rate_->Set(learning_rate);
  tokens_->Increment(static_cast<double>(figures.tokens));
  samples_->Increment(static_cast<double>(samples));
  flops_->Increment(flops);
  step_seconds_.metric->Observe(seconds);
}

void TrainMetrics::RecordPhases(const PhaseSeconds& phases) {
  const double totals[] = {phases.data, phases.forward, phases.backward, phases.exposed,
                           phases.update};
  for (size_t phase = 0; phase < phases_.size(); ++phase) RaiseTo(*phases_[phase], totals[phase]);
}

void TrainMetrics::RecordMemory(const MemoryMeter& meter) {
  // On a device with memory of its own what is predicted of both sides.
  const int64_t peak = meter.device() == nullptr ? meter.peak_total()
                                                 : meter.peak_total(MemoryMeter::Side::kDevice) +
                                                       meter.peak_total(MemoryMeter::Side::kHost);
  memory_peak_total_->Set(static_cast<double>(peak));
  for (int pool = 0; pool < kPools; ++pool) {
    const size_t at = static_cast<size_t>(pool);
    memory_[at]->Set(static_cast<double>(meter.current(static_cast<Pool>(pool))));
    memory_peak_[at]->Set(static_cast<double>(meter.peak(static_cast<Pool>(pool))));
  }
}

void TrainMetrics::RecordWire(const GroupCounts& counts) {
  for (size_t group = 0; group < counts.size(); ++group) {
    for (size_t op = 0; op < counts[group].size(); ++op) {
      const WireCount& count = counts[group][op];
      if (count.calls == 0) continue;
      const auto [found, added] = wire_.try_emplace({group, op});
      WireSeries& series = found->second;
      if (added) series = AddWire(static_cast<Collective>(op), static_cast<WireGroup>(group));
      RaiseTo(*series.bytes, static_cast<double>(count.bytes));
      RaiseTo(*series.messages, static_cast<double>(count.messages));
      std::vector<double> calls(count.by_seconds.size());
      for (size_t i = 0; i < calls.size(); ++i) {
        calls[i] = static_cast<double>(count.by_seconds[i] - series.recorded.by_seconds[i]);
      }
      series.seconds.metric->ObserveMultiple(calls, count.seconds - series.recorded.seconds);
      series.recorded = count;
    }
  }
}

void TrainMetrics::RecordCopies(const CopyCosts& costs) {
  if (copies_.bytes == nullptr) {
    copies_ = {AddCounter("sherd_replica_bytes_total",
                          "Bytes of stored shards sent to processes on other hosts.")
                   .metric,
               AddCounter("sherd_replica_seconds_total",
                          "Time of sending them, until they are stored, beside training.")
                   .metric,
               AddCounter("sherd_replica_wait_seconds_total",
                          "Time that training waited for the last step to be stored.")
                   .metric};
  }
  RaiseTo(*copies_.bytes, static_cast<double>(costs.bytes));
  RaiseTo(*copies_.seconds, costs.seconds);
  RaiseTo(*copies_.waiting, costs.waiting_seconds);
}

}  // namespace sherd
