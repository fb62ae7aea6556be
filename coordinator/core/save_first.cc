#include "coordinator/core/save_first.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "coordinator/core/broken_links.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/epoch_end.h"
#include "plan/holdings.h"

namespace sherd {
namespace {

constexpr int64_t kFirstRetryMs = 1000;
// Doubled so often.
constexpr int kMostDoublings = 5;
// As long as the failure detection says.
constexpr int64_t kDetectionTime = -1;

bool Anybody(const WorkerState&) { return true; }
bool Stays(const WorkerState& worker) { return !worker.draining; }

bool IsUnsaved(const JobRecord& job, const RestorePoint& restore) {
  if (!restore.version || restore.step == 0) return false;
  return !job.checkpoint || job.checkpoint->step < restore.step;
}

// The job's epochs committed more than this.
bool Loses(const JobRecord& job, const RestorePoint& restore) {
  if (restore.step < job.step) return true;
  // What the last epoch committed, and nobody had told of yet, is in none of the answers.
  return !restore.version && job.restored == job.epoch && !job.save_and_stop;
}

// Of those who fell silent, a process that may still be there.
bool MayReturn(const State& state, const JobRecord& job, const WorkerId& worker) {
  const auto silent = job.silent.find(worker);
  if (silent == job.silent.end()) return false;
  const WorkerState* known = FindWorker(state, worker);
  return known != nullptr && known->incarnation == silent->second;
}

// With what silent processes may come back with, the last epoch's steps can be whole: nobody is
// waited for who had no copies, or whose copies are of no use without those of the dead.
bool MayReturnWithSteps(const State& state, const JobRecord& job) {
  const bool any = std::any_of(job.silent.begin(), job.silent.end(), [&](const auto& entry) {
    return MayReturn(state, job, entry.first);
  });
  if (!any || WantedCopies(job.spec) == 0) return false;
  // Of an epoch that restored nothing the parts are those of another one.
  if (job.restored != job.epoch) return true;
  const int world = static_cast<int>(job.ranks.size());
  std::set<int> parts;
  for (int rank = 0; rank < world; ++rank) {
    const RankState& owner = job.ranks[rank];
    std::vector<WorkerId> processes = owner.holders;
    processes.push_back(owner.worker);
    const bool there =
        std::any_of(processes.begin(), processes.end(), [&](const WorkerId& process) {
          return job.answers.contains(process) || MayReturn(state, job, process);
        });
    if (there) parts.insert(PartOf(job.spec, world, rank));
  }
  return static_cast<int>(parts.size()) == PartsOf(job.spec, world);
}

bool IsToBeSaved(const State& state, const JobRecord& job, const RestorePoint& restore) {
  if (!IsUnsaved(job, restore) || job.failed_saves >= kMostFailedSaves) return false;
  return LeavesWithUnsaved(state, job, restore) || !job.spec.checkpoint().dir().empty();
}

void Have(Transition& transition, JobRecord& job, Patience::For what, int64_t delay_ms) {
  if (job.patience.what == what) return;
  job.patience.what = what;
  job.patience.since_unix_ms = transition.now();
  job.patience.delay_ms = delay_ms;
  transition.Act(StartPatienceTimer{job.id, job.epoch});
}

// Lets time pass for silent workers as long as steps may come back with one, and it was not enough.
bool HasPatience(Transition& transition, JobRecord& job, const RestorePoint& restore,
                 Patience::For what) {
  if (job.patience.silent_over || !Loses(job, restore)) return false;
  if (!MayReturnWithSteps(transition.state(), job)) return false;
  Have(transition, job, what, kDetectionTime);
  return true;
}

bool AnyLeaves(const State& state, const JobRecord& job) {
  return std::any_of(job.answers.begin(), job.answers.end(), [&](const auto& entry) {
    const WorkerState* worker = FindWorker(state, entry.first);
    return worker != nullptr && worker->draining && !entry.second.holdings.empty();
  });
}

// Before the next try; 0: none.
int64_t DelayOf(const State& state, const JobRecord& job, bool preempted) {
  const bool own_failure = job.end_kind == EndKind::kFailure || job.end_kind == EndKind::kHang ||
                           job.end_kind == EndKind::kFormation;
  if (job.failed_saves > 0) {
    return own_failure ? kFirstRetryMs << std::min(job.failed_saves - 1, kMostDoublings) : 0;
  }
  return preempted || AnyLeaves(state, job) ? 0 : kDetectionTime;
}

// All jobs placed in order, without effect but on those that save.
class Rehearsal {
 public:
  Rehearsal(Transition& transition, const std::map<JobId, RestorePoint>& unsaved)
      : transition_(transition),
        unsaved_(unsaved),
        all_(transition.state()),
        left_(transition.state()) {}

  void Place(JobRecord& job) {
    if (job.state == v1::JOB_STATE_QUEUED) {
      left_.Place(job);
    } else if (!AllLeft(job)) {
      left_.Reserve(job, MostRanks(job));
    } else if (const auto found = unsaved_.find(job.id); found != unsaved_.end()) {
      GoOnOrSave(job, found->second);
    } else {
      const State& state = transition_.state();
      left_.PlaceAgain(job, WorldToTrain(state, job, ChooseRestorePoint(state, job, Anybody)));
    }
  }

 private:
  void GoOnOrSave(JobRecord& job, const RestorePoint& restore) {
    const State& state = transition_.state();
    WorkerPools after_others = left_;
    if (!left_.PlaceAgain(job, WorldToTrain(state, job, restore)).workers.empty()) return;
    const WorkerPools::NextWorld world = WorldToSave(state, job, restore);
    WorkerPools undisturbed = all_;
    const GangPlacement placement = undisturbed.PlaceAgain(job, world);
    if (placement.workers.empty()) return;
    const bool preempted = after_others.PlaceAgain(job, world).workers != placement.workers;
    const int64_t delay = DelayOf(state, job, preempted);
    left_.Withhold(placement.workers);
    // An epoch that saves is the past of all that comes later: nothing newer would count any more.
    const bool can_wait = !LeavesWithUnsaved(state, job, restore);
    if (can_wait && HasPatience(transition_, job, restore, Patience::For::kSilentBeforeSave)) {
      return;
    }
    if (delay != 0 && !job.patience.save_due) {
      return Have(transition_, job, Patience::For::kSave, delay);
    }
    all_.Withhold(placement.workers);
    FormEpoch(transition_, job, placement.workers, restore, /*save_and_stop=*/true);
  }

  Transition& transition_;
  const std::map<JobId, RestorePoint>& unsaved_;
  WorkerPools all_;
  // After those that come earlier.
  WorkerPools left_;
};

}  // namespace

int64_t MostRanks(const JobRecord& job) {
  // A planned end makes room for more; of a world that the log knows nothing of any size will do.
  const bool any = job.paused || job.usual_world == 0;
  return any ? std::numeric_limits<int64_t>::max() : job.usual_world;
}

WorkerPools::NextWorld WorldToTrain(const State& state, const JobRecord& job,
                                    const RestorePoint& restore) {
  return {.most = MostRanks(job), .domains = ReadersOf(state, restore)};
}

WorkerPools::NextWorld WorldToSave(const State& state, const JobRecord& job,
                                   const RestorePoint& restore) {
  return {.most = MostRanks(job),
          .leaving = WorkerPools::Leaving::kTakenIn,
          .below_minimum = true,
          .domains = ReadersOf(state, restore)};
}

bool LeavesWithUnsaved(const State& state, const JobRecord& job, const RestorePoint& restore) {
  if (!IsUnsaved(job, restore)) return false;
  const RestorePoint without = ChooseRestorePoint(state, job, Stays);
  return !without.version || without.step < restore.step;
}

bool IsAboutToSave(const JobRecord& job) {
  return job.patience.what == Patience::For::kSave ||
         job.patience.what == Patience::For::kSilentBeforeSave || job.patience.save_due;
}

void SaveWaitingJobs(Transition& transition, const std::vector<JobId>& order) {
  std::map<JobId, RestorePoint> unsaved;
  for (const JobId& id : order) {
    JobRecord& job = *transition.Job(id);
    if (job.state != v1::JOB_STATE_RECOVERING || !AllLeft(job)) continue;
    ExcludeBrokenLinks(transition, job);
    if (job.fruitless >= kMostFruitless) continue;
    RestorePoint restore = ChooseRestorePoint(transition.state(), job, Anybody);
    if (IsToBeSaved(transition.state(), job, restore)) {
      unsaved[id] = std::move(restore);
    } else if (IsAboutToSave(job)) {
      job.patience = {.silent_over = job.patience.silent_over};
    }
  }
  if (unsaved.empty()) return;
  Rehearsal rehearsal(transition, unsaved);
  for (const JobId& id : order) rehearsal.Place(*transition.Job(id));
}

void WarnOfUnsaved(Transition& transition, JobRecord& job, const RestorePoint& restore) {
  if (!IsUnsaved(job, restore) || IsAboutToSave(job)) return;
  size_t rarest = SIZE_MAX;
  for (const auto& [part, holders] : restore.parts) {
    std::set<WorkerId> processes;
    for (const PartHolder& holder : holders) processes.insert(holder.worker);
    rarest = std::min(rarest, processes.size());
  }
  const auto copies = static_cast<int64_t>(rarest);
  if (std::exchange(job.told_copies, copies) == copies) return;
  v1::JobEvent event;
  event.mutable_warning()->set_kind("replicas");
  event.mutable_warning()->set_rank(-1);
  event.mutable_warning()->set_text(
      absl::StrCat("the job waits, and step ", restore.step, " is in no checkpoint: ",
                   Counted(copies, "process holds", "processes hold"), " its rarest shard"));
  transition.Publish(job, std::move(event));
}

bool AwaitsSilent(Transition& transition, JobRecord& job, const RestorePoint& restore) {
  return HasPatience(transition, job, restore, Patience::For::kSilent);
}

}  // namespace sherd
