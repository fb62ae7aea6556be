#include "tests/simulation/schedule.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/worker_process.h"
#include "tests/support/jobs.h"

namespace sherd::simulation {
namespace {

// In simulated time. The hang time-out and the formation's are the longest that anything waits.
constexpr absl::Duration kLongest = absl::Minutes(20);
// After the last job's end: releases, and what may be dropped, are on their way. Longer than a
// freeze and the time that a rank has to end after its abort.
constexpr absl::Duration kSettling = absl::Seconds(40);
constexpr int kMostFruitless = 3;

// Small in all that the coordinator computes from; in every world up to five each rank has work.
const std::vector<v1::JobSpec>& KindsOfJobs() {
  static const auto* const kinds = new std::vector<v1::JobSpec>([] {
    std::vector<v1::JobSpec> made;
    for (const absl::string_view strategy : {"zero3", "zero3", "zero1", "ddp"}) {
      made.push_back(testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 60,
                                      {.layers = 1, .hidden = 64, .heads = 1}));
    }
    v1::JobSpec& open = made.emplace_back(made.front());
    open.mutable_parallel()->Clear();
    open.mutable_parallel()->set_strategy(v1::STRATEGY_AUTO);
    open.mutable_parallel()->set_recompute(v1::RECOMPUTE_NONE);
    open = NormalizeJobSpec(open);
    return made;
  }());
  return *kinds;
}

// A place for one worker process at a time, as a supervisor keeps it.
struct Slot {
  std::string name;
  std::string host;
  std::vector<std::unique_ptr<WorkerProcess>> lives;
  // Its supervisor is dead too: nobody reports the next end, or starts it again soon.
  bool alone = false;
  WorkerProcess& current() { return *lives.back(); }
};

class Schedule {
 public:
  Schedule(const Options& options, CoordinatorMetrics& metrics)
      : cluster_(options), coordinator_(cluster_, metrics) {
    cluster_.coordinator = &coordinator_;
  }
  Schedule(const Schedule&) = delete;

  Outcome Run();

 private:
  struct Job {
    v1::SubmitRequest request;
    std::string id;
    bool to_cancel = false;
    bool cancelled = false;
  };

  void AddSlots();
  void StartLife(size_t slot);
  void OnEnd(size_t slot, int signal, int code);
  void TellExit(v1::ReportExitRequest report);
  void AddJobs();
  void Submit(size_t job);
  void Cancel(size_t job);
  void AddFaults();
  // All processes freeze, and thaw before it is too late.
  void FreezeAll();
  // All that are there leave, one after another.
  void LeaveOneByOne();
  void Strike();
  void StrikeRank(WorkerProcess& process);
  void KillCoordinator();
  bool AllEnded();
  void CheckEnd(Outcome& outcome);

  Cluster cluster_;
  CoordinatorHost coordinator_;
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;
  uint64_t lives_ = 0;
  int64_t faults_ = 0;
  bool leaves_ = false;
  bool calm_ = false;
};

void Schedule::AddSlots() {
  const int64_t count = cluster_.chance.Between(2, 5);
  const int64_t hosts = cluster_.chance.OneIn(2) ? 1 : cluster_.chance.Between(2, 3);
  for (int64_t index = 0; index < count; ++index) {
    slots_.push_back({absl::StrCat("w", index), absl::StrCat("host", index % hosts), {}, false});
  }
  for (size_t index = 0; index < slots_.size(); ++index) {
    // Some come late: the world grows.
    const bool late = index >= 2 && cluster_.chance.OneIn(4);
    cluster_.queue.After(cluster_.chance.Milliseconds(0, late ? 1500 : 5),
                         [this, index] { StartLife(index); });
  }
}

void Schedule::StartLife(size_t index) {
  Slot& slot = slots_[index];
  slot.alone = false;
  slot.lives.push_back(std::make_unique<WorkerProcess>(
      cluster_, slot.name, slot.host, ++lives_,
      [this, index](int signal, int code) { OnEnd(index, signal, code); }));
  slot.current().Start();
}

void Schedule::OnEnd(size_t index, int signal, int code) {
  Slot& slot = slots_[index];
  if (!slot.alone) {
    v1::ReportExitRequest report;
    report.set_worker_id(slot.name);
    report.set_incarnation(slot.current().incarnation());
    report.set_signal(signal);
    report.set_exit_code(code);
    cluster_.queue.After(cluster_.Delay(), [this, report] { TellExit(report); });
  }
  absl::Duration pause =
      slot.alone ? cluster_.chance.Milliseconds(500, 4000) : cluster_.chance.Milliseconds(50, 400);
  // The host is looked after.
  if (leaves_ && !calm_) pause = cluster_.chance.Milliseconds(4000, 9000);
  cluster_.queue.After(pause, [this, index] { StartLife(index); });
}

void Schedule::TellExit(v1::ReportExitRequest report) {
  if (coordinator_.up()) {
    return coordinator_.Hear(
        [&](Controller& controller) { controller.fleet().ReportExit(report); });
  }
  cluster_.queue.After(absl::Milliseconds(200), [this, report] { TellExit(report); });
}

void Schedule::AddJobs() {
  const int64_t count = cluster_.chance.OneIn(4) ? 2 : 1;
  for (int64_t index = 0; index < count; ++index) {
    Job job;
    job.request.set_request_id(absl::StrCat("request ", index));
    v1::JobSpec& spec = *job.request.mutable_spec();
    const std::vector<v1::JobSpec>& kinds = KindsOfJobs();
    spec = kinds[static_cast<size_t>(cluster_.chance.Below(std::ssize(kinds)))];
    spec.mutable_checkpoint()->set_dir(absl::StrCat("out", index));
    spec.mutable_train()->set_steps(cluster_.chance.Between(3, 12));
    const auto workers = static_cast<int64_t>(slots_.size());
    const int64_t least = cluster_.chance.Between(1, std::min<int64_t>(workers, 3));
    spec.mutable_elastic()->set_min_workers(least);
    spec.mutable_elastic()->set_max_workers(cluster_.chance.Between(least, workers));
    spec.mutable_elastic()->set_replicas(cluster_.chance.OneIn(5) ? 2 : 1);
    job.to_cancel = cluster_.chance.OneIn(12);
    jobs_.push_back(std::move(job));
    cluster_.queue.After(cluster_.chance.Milliseconds(0, 100),
                         [this, index] { Submit(static_cast<size_t>(index)); });
  }
}

void Schedule::Submit(size_t index) {
  if (!jobs_[index].id.empty()) return;
  coordinator_.Hear([&](Controller& controller) {
    controller.jobs().Submit(
        jobs_[index].request, [this, index](absl::StatusOr<v1::SubmitResponse> response) {
          if (!response.ok()) return cluster_.trace.Say("refused: ", response.status().ToString());
          Job& job = jobs_[index];
          if (!job.id.empty() && job.id != response->job().id()) {
            cluster_.referee.Accuse("one request became two jobs");
          }
          if (!std::exchange(job.id, response->job().id()).empty() || !job.to_cancel) return;
          cluster_.queue.After(cluster_.chance.Milliseconds(0, 800),
                               [this, index] { Cancel(index); });
        });
  });
  // Until it is answered, by whichever life of the coordinator.
  cluster_.queue.After(absl::Milliseconds(2500), [this, index] { Submit(index); });
}

void Schedule::Cancel(size_t index) {
  if (jobs_[index].cancelled) return;
  coordinator_.Hear([&](Controller& controller) {
    controller.jobs().Cancel(JobId(jobs_[index].id),
                             [this, index](const absl::StatusOr<v1::CancelResponse>&) {
                               jobs_[index].cancelled = true;
                             });
  });
  cluster_.queue.After(absl::Milliseconds(1000), [this, index] { Cancel(index); });
}

void Schedule::AddFaults() {
  const int64_t count = cluster_.chance.Below(6);
  const int64_t span = cluster_.chance.OneIn(3) ? 4000 : 400;
  absl::Duration last;
  for (int64_t index = 0; index < count; ++index) {
    absl::Duration when = cluster_.chance.Milliseconds(5, span);
    // Often hard on the heels of another.
    if (index > 0 && cluster_.chance.OneIn(3)) when = last + cluster_.chance.Milliseconds(0, 60);
    last = when;
    cluster_.queue.After(when, [this] { Strike(); });
  }
  cluster_.queue.After(absl::Milliseconds(span + 100), [this] { calm_ = true; });
}

void Schedule::FreezeAll() {
  cluster_.referee.ForbidRollbacks();
  cluster_.queue.After(cluster_.chance.Milliseconds(20, 400), [this] {
    // The last is back within twice the detection time of the first.
    const absl::Duration frozen = cluster_.chance.Milliseconds(2000, 7000);
    for (Slot& slot : slots_) {
      if (slot.lives.empty()) continue;
      WorkerProcess& process = slot.current();
      process.Freeze();
      cluster_.queue.After(frozen + cluster_.chance.Milliseconds(0, 1000),
                           [&process] { process.Thaw(); });
    }
  });
  cluster_.queue.After(absl::Seconds(9), [this] { calm_ = true; });
}

void Schedule::LeaveOneByOne() {
  cluster_.referee.ForbidRollbacks();
  leaves_ = true;
  absl::Duration when = cluster_.chance.Milliseconds(20, 400);
  for (Slot& slot : slots_) {
    cluster_.queue.After(when, [&slot] {
      if (!slot.lives.empty()) slot.current().Leave();
    });
    when += cluster_.chance.OneIn(3) ? cluster_.chance.Milliseconds(0, 50)
                                     : cluster_.chance.Milliseconds(100, 2500);
  }
  cluster_.queue.After(when, [this] { calm_ = true; });
}

void Schedule::KillCoordinator() {
  coordinator_.Crash();
  cluster_.queue.After(cluster_.chance.OneIn(3) ? cluster_.chance.Milliseconds(500, 5000)
                                                : cluster_.chance.Milliseconds(20, 400),
                       [this] {
                         if (!coordinator_.up()) coordinator_.Start();
                       });
}

void Schedule::StrikeRank(WorkerProcess& process) {
  FakeRank* const rank = process.rank();
  if (rank == nullptr) return process.Kill(9);
  if (cluster_.chance.OneIn(3)) return rank->Wedge(cluster_.chance.OneIn(3));
  if (cluster_.chance.OneIn(2)) return rank->LoseHolder();
  rank->LoseLink();
}

void Schedule::Strike() {
  ++faults_;
  const auto index = static_cast<size_t>(cluster_.chance.Below(std::ssize(slots_)));
  Slot& slot = slots_[index];
  if (slot.lives.empty()) return KillCoordinator();
  WorkerProcess& process = slot.current();
  switch (cluster_.chance.Below(10)) {
    case 0:
    case 1:
      return process.Kill(9);
    case 2:
      slot.alone = process.alive();
      return process.Kill(9);
    case 3:
    case 4: {
      const bool long_enough = cluster_.chance.OneIn(2);
      process.Freeze();
      return cluster_.queue.After(long_enough ? cluster_.chance.Milliseconds(2500, 8000)
                                              : cluster_.chance.Milliseconds(5, 1000),
                                  [&process] { process.Thaw(); });
    }
    case 5:
      return process.BreakStream();
    case 6:
      return KillCoordinator();
    case 7:
      return process.Leave();
    case 8:
      cluster_.trace.Say(process.name(), " is drained");
      return coordinator_.Hear([&](Controller& controller) {
        controller.jobs().Drain(WorkerId(process.name()),
                                [](const absl::StatusOr<v1::DrainResponse>&) {});
      });
    default:
      return StrikeRank(process);
  }
}

bool Schedule::AllEnded() {
  if (!coordinator_.up()) return false;
  const auto& jobs = coordinator_.state().jobs;
  return jobs.size() == jobs_.size() &&
         std::all_of(jobs.begin(), jobs.end(),
                     [](const auto& entry) { return IsTerminal(entry.second.state); });
}

void Schedule::CheckEnd(Outcome& outcome) {
  coordinator_.CheckReplay();
  cluster_.referee.SeeEnd(coordinator_.state());
  for (const auto& [id, record] : coordinator_.state().jobs) {
    outcome.succeeded += record.state == v1::JOB_STATE_SUCCEEDED ? 1 : 0;
    outcome.cancelled += record.state == v1::JOB_STATE_CANCELLED ? 1 : 0;
    for (Slot& slot : slots_) {
      WorkerProcess& process = slot.current();
      if (!process.alive() || !process.store().HoldsAnythingOf(id.value())) continue;
      cluster_.referee.Accuse(
          absl::StrCat(slot.name, " keeps holdings of ", id.value(), ", which has ended"));
    }
    if (record.state != v1::JOB_STATE_FAILED) continue;
    ++outcome.failed;
    const bool fruitless = absl::StrContains(record.reason, "epochs in a row ended");
    if (fruitless && faults_ >= kMostFruitless) continue;
    cluster_.referee.Accuse(
        absl::StrCat(id.value(), " failed after ", faults_, " faults: ", record.reason));
  }
}

Outcome Schedule::Run() {
  coordinator_.Start();
  AddSlots();
  AddJobs();
  switch (cluster_.chance.Below(10)) {
    case 0:
      FreezeAll();
      break;
    case 1:
      LeaveOneByOne();
      break;
    default:
      AddFaults();
  }
  const Referee& referee = cluster_.referee;
  const absl::Time end = cluster_.queue.Now() + kLongest;
  absl::Time settled = absl::InfiniteFuture();
  while (!referee.verdict() && cluster_.queue.Now() < std::min(end, settled)) {
    if (!cluster_.queue.RunNext()) break;
    if (settled == absl::InfiniteFuture() && calm_ && AllEnded()) {
      settled = cluster_.queue.Now() + kSettling;
    }
  }
  Outcome outcome;
  if (!referee.verdict() && !coordinator_.up()) coordinator_.Start();
  if (!referee.verdict()) CheckEnd(outcome);
  outcome.wrong = referee.verdict();
  outcome.trace = cluster_.trace.lines();
  outcome.events = cluster_.queue.added();
  outcome.epochs = referee.epochs();
  outcome.losses = referee.losses();
  outcome.rollbacks = referee.rollbacks();
  outcome.committed_steps = referee.committed();
  return outcome;
}

}  // namespace

Outcome RunSchedule(const Options& options, CoordinatorMetrics& metrics) {
  return Schedule(options, metrics).Run();
}

}  // namespace sherd::simulation
