// What it costs a coordinator to compact its log, and to begin anew on it: docs/adr/0010.
//
//   bench_log_compaction [--jobs 100] [--workers 64] [--dir DIR]
//   bench_log_compaction --hidden --jobs 100 --workers 10

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "coordinator/core/reducer.h"
#include "coordinator/core/snapshot.h"
#include "coordinator/store/event_log.h"
#include "tests/coordinator/scenario.h"

namespace sherd {
namespace {

// What `work` takes, also on a machine that has more to do.
std::string CostOf(const std::function<void()>& work) {
  const std::clock_t computing = std::clock();
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto end = std::chrono::steady_clock::now();
  return absl::StrFormat("%.1f ms (%.1f of the processor)",
                         std::chrono::duration<double, std::milli>(end - start).count(),
                         1e3 * static_cast<double>(std::clock() - computing) / CLOCKS_PER_SEC);
}

// So many jobs that run on so many workers each: copies of one, since placing them all would take
// longer than what is measured.
State Fill(int jobs, int workers) {
  Scenario scenario;
  scenario.JoinWorkers(workers);
  const JobId id = scenario.Run({.min_workers = workers, .max_workers = workers});
  State state;
  state.sequence = scenario.state().sequence;
  for (int number = 0; number < jobs; ++number) {
    const auto renamed = [number](const WorkerId& worker) {
      return WorkerId(absl::StrCat("host-", number, "/", worker.value()));
    };
    JobRecord job = scenario.job(id);
    job.id = JobId(absl::StrCat("job-", number));
    for (RankState& rank : job.ranks) {
      rank.worker = renamed(rank.worker);
      for (WorkerId& holder : rank.holders) holder = renamed(holder);
    }
    for (const auto& [name, known] : scenario.state().workers) {
      WorkerState worker = known;
      worker.id = renamed(name);
      worker.seat->job = job.id;
      state.workers[worker.id] = worker;
    }
    state.jobs[job.id] = job;
  }
  state.submissions = jobs;
  return state;
}

// A spare that comes and goes: so many events that change nothing else, applied to `state`.
LogBatch ComeAndGo(State& state, int events) {
  LogBatch batch;
  for (int number = 0; number < events; ++number) {
    const auto life = static_cast<uint64_t>(state.sequence + number / 2 * 2);
    v1::DurableEvent& event = batch.events.emplace_back(
        number % 2 == 0 ? Joined("spare", life) : Lost("spare", life, "SIGKILL"));
    event.set_sequence(state.sequence + 1);
    Apply(event, state);
  }
  return batch;
}

void Measure(int jobs, int workers, int events, const std::string& directory) {
  State state = Fill(jobs, workers);
  std::printf("%d jobs of %d workers\n", jobs, workers);
  v1::StoredState stored;
  const std::string writing = CostOf([&] { stored = WriteState(state); });
  std::string bytes;
  const std::string serializing = CostOf([&] { bytes = stored.SerializeAsString(); });
  const std::string checking = CostOf([&] {
    v1::StoredState again;
    SHERD_CHECK(again.ParseFromString(bytes));
    SHERD_CHECK(WriteState(*ReadState(again)).SerializeAsString() == bytes);
  });
  std::printf("a snapshot of %.2f MB: %s to write, %s to serialize, %s to check\n",
              static_cast<double>(bytes.size()) / 1e6, writing.c_str(), serializing.c_str(),
              checking.c_str());
  auto log = *EventLog::Open(directory);
  for (int turn = 0; turn < 4; ++turn) {
    stored = WriteState(state);
    std::printf("stored in %s\n", CostOf([&] { SHERD_CHECK(log->Compact(stored).ok()); }).c_str());
    LogBatch batch;
    const std::string applying = CostOf([&] { batch = ComeAndGo(state, events); });
    std::printf("%d events applied in %s\n", events, applying.c_str());
    SHERD_CHECK(log->Commit(batch).ok());
  }
  log.reset();
  State recovered;
  const std::string opening = CostOf([&] {
    log = *EventLog::Open(directory);
    recovered = *ReadState(**log->ReadSnapshot());
  });
  const std::string replaying = CostOf([&] {
    SHERD_CHECK(log->Replay(recovered.sequence,
                            [&](const v1::DurableEvent& event) { Apply(event, recovered); })
                    .ok());
  });
  SHERD_CHECK(Describe(recovered) == Describe(state));
  std::printf("opened in %s, %d events replayed in %s\n", opening.c_str(), events,
              replaying.c_str());
}

// What an event costs while idle workers are there on which no job can grow, since the jobs' own
// have no address for other hosts; and while jobs wait besides that can be read on their host only.
void MeasureHidden(int jobs, int workers) {
  State state = Fill(jobs, workers);
  for (auto& [id, worker] : state.workers) {
    worker.shared_memory_domain = worker.seat->job.value();
    worker.network_address.clear();
  }
  for (auto& [id, job] : state.jobs) {
    job.spec.mutable_elastic()->set_max_workers(0);
    job.progressed = true;
  }
  LogBatch batch;
  constexpr int kEvents = 20;
  std::printf("%d jobs of %d workers of hosts of their own: %d events applied in %s\n", jobs,
              workers, kEvents, CostOf([&] { batch = ComeAndGo(state, kEvents); }).c_str());
  // All wait, with what they hold.
  for (auto& [id, job] : state.jobs) {
    job.state = v1::JOB_STATE_RECOVERING;
    job.spec.mutable_elastic()->set_min_workers(workers + 1);
    job.aborted = job.holders_asked = true;
    for (int rank = 0; rank < workers; ++rank) {
      RankState& member = job.ranks[rank];
      member.left = true;
      WorkerState& worker = state.workers.at(member.worker);
      worker.seat.reset();
      v1::Holding held;
      held.set_epoch(1);
      held.set_world(workers);
      held.set_owner(rank);
      held.set_step(5);
      job.answers[member.worker] = {worker.incarnation, {held}};
    }
  }
  std::printf("%d jobs of %d workers that wait: %d events applied in %s\n", jobs, workers, kEvents,
              CostOf([&] { batch = ComeAndGo(state, kEvents); }).c_str());
}

void MeasureFeeds(int64_t entries, const std::string& directory) {
  auto log = *EventLog::Open(directory);
  constexpr int64_t kBatch = 10'000;
  for (int64_t first = 1; first <= entries; first += kBatch) {
    LogBatch batch;
    for (int64_t step = first; step < first + kBatch; ++step) {
      v1::JobEvent& entry = batch.feed.emplace_back();
      entry.set_job_id(absl::StrCat("job-", step / 100'000));
      entry.set_sequence(step % 100'000 + 1);
      entry.set_time_unix_ms(1'700'000'000'000 + step);
      entry.mutable_step()->set_step(step);
      entry.mutable_step()->set_loss(3.25 + 1.0 / static_cast<double>(step));
      entry.mutable_step()->set_grad_norm(0.7);
      entry.mutable_step()->set_lr(3e-4);
      entry.mutable_step()->set_tokens(524'288);
      entry.mutable_step()->set_tokens_per_second(123'456.7);
      entry.mutable_step()->set_step_ms(41.5);
    }
    SHERD_CHECK(log->Commit(batch).ok());
  }
  log.reset();
  const std::string opening = CostOf([&] { log = *EventLog::Open(directory); });
  const std::string summing = CostOf([&] { SHERD_CHECK(log->SummarizeFeeds().ok()); });
  const std::string dropping =
      CostOf([&] { SHERD_CHECK(log->DropFeed(JobId("job-3"), 1000).ok()); });
  std::printf("%lld feed entries: opened in %s, summed up in %s, 1000 dropped in %s\n",
              static_cast<long long>(entries), opening.c_str(), summing.c_str(), dropping.c_str());
}

int Main(int argc, char** argv) {
  int jobs = 100;
  int workers = 64;
  int events = 1000;
  int64_t entries = 1'000'000;
  std::string directory = ".";
  bool hidden = false;
  CLI::App app("Measures snapshots of the coordinator's state and what they save.");
  app.add_option("--jobs", jobs)->capture_default_str();
  app.add_option("--workers", workers, "of each job")->capture_default_str();
  app.add_option("--events", events, "between two snapshots")->capture_default_str();
  app.add_option("--feed", entries, "entries, in multiples of 100000")->capture_default_str();
  app.add_option("--dir", directory, "where logs are made")->capture_default_str();
  app.add_flag("--hidden", hidden, "only what events cost where workers reach no other hosts");
  CLI11_PARSE(app, argc, argv);
  if (hidden) {
    MeasureHidden(jobs, workers);
    return 0;
  }
  Measure(jobs, workers, events, directory + "/state");
  MeasureFeeds(entries, directory + "/feeds");
  return 0;
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) { return sherd::Main(argc, argv); }
