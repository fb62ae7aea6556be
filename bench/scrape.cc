// What a scrape costs, and what it does to the step whose series are read meanwhile.
//
//   bench_scrape [--jobs 20] [--scrapes 1000]

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/runtime/job_feed.h"
#include "coordinator/runtime/job_metrics.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "worker/train/train_metrics.h"

namespace sherd {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsOf(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void Print(const std::string& what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("%-44s median %8.1f µs   p99 %8.1f µs   longest %8.1f µs\n", what.c_str(),
              times[times.size() / 2], times[times.size() * 99 / 100], times.back());
}

// A rank that sends every collective in every group, on a worker.
class Rank {
 public:
  explicit Rank(prometheus::Registry& registry)
      : metrics_(registry, "job-1", "job", "hybrid", 0, {"shm", "shm", "tcp", "shm", "shm"}) {
    v1::RankLedger ledger;
    for (int pool = 0; pool < kPools; ++pool) {
      (*ledger.mutable_memory())[std::string(NameOf(static_cast<Pool>(pool)))].set_predicted(1
                                                                                             << 20);
    }
    metrics_.RecordPrediction(ledger);
  }

  void Step() {
    ++step_;
    for (WireCounts& group : counts_) {
      for (WireCount& count : group) {
        count.Count(1e-3);
        count.bytes += 1 << 20;
        count.messages += 4;
      }
    }
    phases_.forward += 0.1;
    metrics_.RecordStep(figures_, 0.1, step_, 1e-3, 1e9, 8);
    metrics_.RecordPhases(phases_);
    metrics_.RecordMemory(meter_);
    metrics_.RecordWire(counts_);
    metrics_.RecordCopies({.bytes = step_ << 20, .seconds = 0.1, .waiting_seconds = 0.1});
  }

 private:
  TrainMetrics metrics_;
  MemoryMeter meter_;
  const StepFigures figures_ = {};
  GroupCounts counts_ = {};
  PhaseSeconds phases_;
  int64_t step_ = 0;
};

void AddJobs(int jobs, JobMetrics& metrics, JobFeed& feed) {
  for (int number = 0; number < jobs; ++number) {
    JobRecord job;
    job.id = JobId(absl::StrCat("fortunes-", number));
    job.state = v1::JOB_STATE_RUNNING;
    v1::JobEvent running;
    running.set_job_id(job.id.value());
    running.mutable_state()->set_state(v1::JOB_STATE_RUNNING);
    metrics.Observe(running);
    v1::JobEvent step = running;
    step.mutable_step()->set_step(1000);
    step.mutable_step()->set_loss(2.5);
    metrics.Observe(step);
    feed.Add(step);
    metrics.Update(job, feed.ProgressOf(job.id), absl::UnixEpoch());
  }
}

// Of a scrape as the exposer makes it: values are copied under locks, and written without.
void MeasureScrapes(const std::string& who, const prometheus::Registry& registry, int scrapes) {
  std::vector<double> copying, all;
  size_t bytes = 0;
  for (int i = 0; i < scrapes; ++i) {
    std::vector<prometheus::MetricFamily> families;
    copying.push_back(MicrosecondsOf([&] { families = registry.Collect(); }));
    all.push_back(copying.back() + MicrosecondsOf([&] {
                    bytes = prometheus::TextSerializer().Serialize(families).size();
                  }));
  }
  const std::string page = prometheus::TextSerializer().Serialize(registry.Collect());
  int64_t series = 0;
  for (size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) series += page[at] != '#';
  std::printf("%s: %lld series, %zu bytes\n", who.c_str(), static_cast<long long>(series), bytes);
  Print("  scrape", all);
  Print("  of that under the locks of families", copying);
}

void MeasureSteps(prometheus::Registry& registry, Rank& rank, int steps) {
  const auto run = [&](const std::string& what) {
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) times.push_back(MicrosecondsOf([&] { rank.Step(); }));
    Print(what, times);
  };
  run("  a step's series brought up to date");
  std::atomic<bool> done = false;
  std::thread scraper([&] {
    while (!done) prometheus::TextSerializer().Serialize(registry.Collect());
  });
  run("  … while scrape follows scrape");
  done = true;
  scraper.join();
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) {
  int jobs = 20, scrapes = 1000;
  CLI::App app("Costs of scrapes");
  app.add_option("--jobs", jobs, "Jobs that have not ended")->check(CLI::PositiveNumber);
  app.add_option("--scrapes", scrapes, "Scrapes of each")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  prometheus::Registry worker;
  sherd::Rank rank(worker);
  rank.Step();
  sherd::MeasureScrapes("a worker", worker, scrapes);
  sherd::MeasureSteps(worker, rank, scrapes);

  prometheus::Registry coordinator;
  sherd::JobMetrics metrics(coordinator);
  sherd::JobFeed feed;
  sherd::AddJobs(jobs, metrics, feed);
  sherd::MeasureScrapes(absl::StrCat("a coordinator with ", jobs, " jobs"), coordinator, scrapes);
  return 0;
}
