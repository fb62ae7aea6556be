#include "coordinator/core/schedule.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "common/printable_text.h"
#include "coordinator/core/broken_links.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/directories.h"
#include "coordinator/core/epoch_end.h"
#include "coordinator/core/next_epoch.h"
#include "coordinator/core/placement.h"
#include "coordinator/core/save_first.h"
#include "coordinator/core/trials.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

// Jobs that wait for workers, in the order in which they are placed.
std::vector<JobId> OrderOf(const State& state) {
  std::vector<const JobRecord*> jobs;
  for (const auto& [id, job] : state.jobs) {
    if (job.state == v1::JOB_STATE_RECOVERING) jobs.push_back(&job);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const JobRecord* a, const JobRecord* b) { return a->order < b->order; });
  for (const JobId& id : state.queue) jobs.push_back(FindJob(state, id));
  std::stable_sort(jobs.begin(), jobs.end(), [](const JobRecord* a, const JobRecord* b) {
    return a->spec.priority() > b->spec.priority();
  });
  std::vector<JobId> order;
  for (const JobRecord* job : jobs) order.push_back(job->id);
  return order;
}

// One pass over them.
class Pass {
 public:
  explicit Pass(Transition& transition) : transition_(transition), pools_(transition.state()) {}

  // In order. False when a job has ended: what it held back is for the others, from the start.
  bool PlaceAll(const std::vector<JobId>& order) {
    for (const JobId& id : order) {
      JobRecord& job = *transition_.Job(id);
      if (job.state == v1::JOB_STATE_QUEUED) {
        Place(job);
      } else if (job.state == v1::JOB_STATE_RECOVERING) {
        PlaceAgain(job);
      }
      if (IsTerminal(job.state)) return false;
    }
    return true;
  }

  void Place(JobRecord& job);
  // The first job that waits for busy workers.
  void set_ahead(const JobRecord* job) { ahead_ = job; }
  const WorkerPools& pools() const { return pools_; }

 private:
  void PlaceAgain(JobRecord& job);
  void WaitForWorkers(JobRecord& job, const RestorePoint& restore, GangPlacement placement);
  void Wait(JobRecord& job, GangPlacement placement);
  bool RefuseDirectory(JobRecord& job);

  Transition& transition_;
  WorkerPools pools_;
  const JobRecord* ahead_ = nullptr;
};

// Ends a job that found its workers but would write where a running one does, which could not be
// told before the first worker named its output root. False when there is no such job.
bool Pass::RefuseDirectory(JobRecord& job) {
  const JobRecord* other = FindJobInDirectory(transition_.state(), job.id, job.spec, IsUnderway);
  if (other == nullptr) return false;
  transition_.End(job, v1::JOB_STATE_FAILED,
                  absl::StrCat("job ", other->id.value(), " is ", std::string(NameOf(other->state)),
                               " and writes to checkpoint.dir \"", other->spec.checkpoint().dir(),
                               "\", this one would to \"", job.spec.checkpoint().dir(),
                               "\"; submit it again with another checkpoint.dir"));
  return true;
}

void Pass::Place(JobRecord& job) {
  GangPlacement placement = pools_.Place(job);
  if (placement.workers.empty()) return Wait(job, std::move(placement));
  if (RefuseDirectory(job)) return;
  if (!PlanLayout(transition_, job, placement.workers)) return;
  FormEpoch(transition_, job, placement.workers, {}, /*save_and_stop=*/false);
}

bool IsLeaving(const State& state, const WorkerId& id) {
  const WorkerState* worker = FindWorker(state, id);
  return worker != nullptr && worker->draining;
}

bool Anybody(const WorkerState&) { return true; }

// Why a job failed whose last epochs ended without a step: all causes if they differ, each cut.
std::string CausesOf(const JobRecord& job) {
  constexpr size_t kMostBytes = 400;
  std::vector<std::string> causes = job.past_causes;
  const bool differ = std::any_of(causes.begin(), causes.end(),
                                  [&](const std::string& cause) { return cause != job.cause; });
  if (!differ) return job.cause;
  causes.push_back(job.cause);
  std::string text;
  for (size_t number = 1; number <= causes.size(); ++number) {
    std::string cause = PrintableText(causes[number - 1], kMostBytes);
    absl::StrAppend(&text, text.empty() ? "" : "; ", number, ": ", cause);
  }
  return text;
}

// Who holds the version alone that workers cannot read.
std::string UnreadableReason(const RestorePoint& restore) {
  std::string text = absl::StrCat("waits for workers that can read step ", restore.step);
  for (const auto& [part, holders] : restore.parts) {
    if (holders.size() != 1) continue;
    return absl::StrCat(text, ": ", holders.front().worker.value(),
                        " holds a part of it alone and has no address for other hosts "
                        "(sherd-worker --data-host)");
  }
  return absl::StrCat(text,
                      ": who holds it has no address for other hosts "
                      "(sherd-worker --data-host)");
}

void Pass::PlaceAgain(JobRecord& job) {
  if (!AllLeft(job)) return pools_.Reserve(job, MostRanks(job));
  ExcludeBrokenLinks(transition_, job);
  const State& state = transition_.state();
  RestorePoint restore = ChooseRestorePoint(state, job, Anybody);
  // Steps of the epoch that ended were committed, and nobody had told of them.
  const int64_t known = std::max(job.restore.step, job.high_step);
  if (!IsUndecided(job) && restore.version && restore.step > known) job.fruitless = 0;
  if (job.fruitless >= kMostFruitless) {
    return transition_.End(
        job, v1::JOB_STATE_FAILED,
        absl::StrCat(job.fruitless, " epochs in a row ended before a step was completed; ",
                     CausesOf(job)));
  }
  WorkerPools::NextWorld world = WorldToTrain(state, job, restore);
  GangPlacement placement = pools_.PlaceAgain(job, world);
  if (placement.workers.empty()) return WaitForWorkers(job, restore, std::move(placement));
  if (AwaitsSilent(transition_, job, restore)) {
    return Wait(job, {.waiting = Waiting::kSilentWorkers,
                      .reason = "waits for workers that fell silent and may hold what was "
                                "committed"});
  }
  if (!PlanLayout(transition_, job, placement.workers)) return;
  FormEpoch(transition_, job, placement.workers, std::move(restore), /*save_and_stop=*/false);
}

void Pass::WaitForWorkers(JobRecord& job, const RestorePoint& restore, GangPlacement placement) {
  const State& state = transition_.state();
  if (job.patience.what == Patience::For::kSilent) job.patience.what = Patience::For::kNothing;
  WorkerPools::NextWorld world = WorldToTrain(state, job, restore);
  if (std::exchange(world.domains, std::nullopt)) {
    WorkerPools others = pools_;
    if (!others.PlaceAgain(job, world).workers.empty()) {
      placement = {.waiting = Waiting::kWorkers, .reason = UnreadableReason(restore)};
    }
  }
  if (IsAboutToSave(job)) {
    // They stay idle until then.
    pools_.PlaceAgain(job, WorldToSave(state, job, restore));
  } else if (!LeavesWithUnsaved(state, job, restore)) {
    // What they hold helps nobody: they are free to go.
    std::erase_if(job.answers, [&](const auto& entry) { return IsLeaving(state, entry.first); });
  }
  WarnOfUnsaved(transition_, job, restore);
  Wait(job, std::move(placement));
}

void Pass::Wait(JobRecord& job, GangPlacement placement) {
  pools_.Withhold(placement.reserved);
  if (placement.waiting == Waiting::kIdleWorkers) {
    if (ahead_ == nullptr) {
      ahead_ = &job;
    } else {
      placement.waiting = Waiting::kEarlierJob;
      absl::StrAppend(&placement.reason, "; ", ahead_->id.value(), " comes first");
    }
  }
  const bool news = job.waiting != placement.waiting;
  job.waiting = placement.waiting;
  std::string reason = job.state == v1::JOB_STATE_QUEUED
                           ? std::move(placement.reason)
                           : absl::StrCat(job.cause, "; the job ", placement.reason);
  // Counts change with every worker that comes and goes; the feed tells only what kind of wait it
  // is.
  job.reason = reason;
  if (news) transition_.Enter(job, job.state, std::move(reason));
}

// A worker that the job's epoch names and that is to leave; nullptr when there is none.
const WorkerState* LeavingMember(const State& state, const JobRecord& job) {
  for (const auto& [id, worker] : state.workers) {
    if (worker.alive && worker.draining && IsNamed(job, worker)) return &worker;
  }
  return nullptr;
}

// Ends epochs of running jobs by plan: one where a worker leaves; and, one at a time, one that can
// grow on workers that are left over.
void PlanChanges(Transition& transition, const WorkerPools& pools) {
  const bool idle = pools.AnyIdle();
  bool draining = false;
  for (const auto& [id, worker] : transition.state().workers) draining |= worker.draining;
  if (!idle && !draining) return;
  bool grows = false;
  for (auto& [id, job] : transition.state().jobs) {
    if (job.state != v1::JOB_STATE_RUNNING || job.save_and_stop || AnyFinished(job)) continue;
    // A measurement ends by itself, soon.
    if (IsUndecided(job)) continue;
    const WorkerState* leaving = draining ? LeavingMember(transition.state(), job) : nullptr;
    if (leaving != nullptr) {
      PauseEpoch(transition, job,
                 absl::StrCat("worker ", leaving->id.value(), " leaves: ", leaving->drain_reason));
      continue;
    }
    // An epoch costs time: one that has not trained a step yet may find more workers soon.
    if (grows || !idle || !job.progressed) continue;
    // What is not stored anywhere would be trained again.
    if (WantedCopies(job.spec) == 0) continue;
    const auto world = static_cast<int64_t>(job.ranks.size());
    const int64_t most = job.spec.elastic().max_workers();
    if (most > 0 && world >= most) continue;
    const int64_t larger = pools.LargestWorld(job);
    if (larger <= world) continue;
    grows = true;
    PauseEpoch(transition, job,
               absl::StrCat("the world grows from ", world, " to ", Counted(larger, "worker")));
  }
}

bool DependsOn(const JobRecord& job, const WorkerState& worker) {
  if (!IsUnderway(job.state)) return false;
  const auto answer = job.answers.find(worker.id);
  if (answer != job.answers.end() && !answer->second.holdings.empty()) return true;
  return std::any_of(job.holders.begin(), job.holders.end(), [&](const CopyHolder& holder) {
    return holder.worker == worker.id && holder.incarnation == worker.incarnation && !holder.left;
  });
}

void DismissLeaving(Transition& transition) {
  for (auto& [id, worker] : transition.state().workers) {
    if (!worker.alive || !worker.draining || worker.dismissed || worker.seat) continue;
    const bool needed = std::any_of(
        transition.state().jobs.begin(), transition.state().jobs.end(),
        [&, &leaving = worker](const auto& entry) { return DependsOn(entry.second, leaving); });
    if (needed) continue;
    worker.dismissed = true;
    transition.Act(SendShutdown{id, worker.incarnation, worker.drain_reason});
  }
}

}  // namespace

void Schedule(Transition& transition) {
  while (true) {
    const std::vector<JobId> order = OrderOf(transition.state());
    SaveWaitingJobs(transition, order);
    Pass pass(transition);
    if (!pass.PlaceAll(order)) continue;
    PlanChanges(transition, pass.pools());
    break;
  }
  DismissLeaving(transition);
}

void ScheduleSubmitted(Transition& transition, JobRecord& job) {
  const State& state = transition.state();
  Pass pass(transition);
  if (pass.pools().AnyIdle() || state.queue.back() != job.id) return Schedule(transition);
  const auto first = std::find_if(state.queue.begin(), state.queue.end(), [&](const JobId& id) {
    return state.jobs.at(id).waiting == Waiting::kIdleWorkers;
  });
  if (first != state.queue.end()) pass.set_ahead(transition.Job(*first));
  pass.Place(job);
}

void Enqueue(Transition& transition, JobRecord& job) {
  std::vector<JobId>& queue = transition.state().queue;
  // From the back: most jobs go there.
  const auto before = std::find_if(queue.rbegin(), queue.rend(), [&](const JobId& id) {
    return transition.Job(id)->spec.priority() >= job.spec.priority();
  });
  queue.insert(before.base(), job.id);
}

}  // namespace sherd
