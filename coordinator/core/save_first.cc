#include "coordinator/core/save_first.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "coordinator/core/epoch_end.h"

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
bool MayReturn(const State& state, const JobRecord& job) {
  return std::any_of(job.silent.begin(), job.silent.end(), [&](const auto& entry) {
    const WorkerState* worker = FindWorker(state, entry.first);
    return worker != nullptr && worker->incarnation == entry.second;
  });
}

bool IsToBeSaved(const State& state, const JobRecord& job, const RestorePoint& restore) {
  if (!IsUnsaved(job, restore) || job.failed_saves >= kMostFailedSaves) return false;
  if (LeavesWithUnsaved(state, job, restore)) return true;
  if (job.spec.checkpoint().dir().empty()) return false;
  // An epoch that saves is the past of all that comes later: nothing newer would count any more.
  return !(Loses(job, restore) && MayReturn(state, job));
}

bool AnyLeaves(const State& state, const JobRecord& job) {
  return std::any_of(job.answers.begin(), job.answers.end(), [&](const auto& entry) {
    const WorkerState* worker = FindWorker(state, entry.first);
    return worker != nullptr && worker->draining && !entry.second.holdings.empty();
  });
}

void Have(Transition& transition, JobRecord& job, Patience::For what, int64_t delay_ms) {
  if (job.patience.what == what) return;
  job.patience.what = what;
  job.patience.since_unix_ms = transition.now();
  job.patience.delay_ms = delay_ms;
  transition.Act(StartPatienceTimer{job.id, job.epoch});
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
  // A planned end makes room for more.
  return job.paused ? std::numeric_limits<int64_t>::max() : job.usual_world;
}

WorkerPools::NextWorld WorldToTrain(const State& state, const JobRecord& job,
                                    const RestorePoint& restore) {
  return {.most = MostRanks(job), .unable = UnableToRead(state, restore)};
}

WorkerPools::NextWorld WorldToSave(const State& state, const JobRecord& job,
                                   const RestorePoint& restore) {
  return {.most = MostRanks(job),
          .leaving = WorkerPools::Leaving::kTakenIn,
          .below_minimum = true,
          .unable = UnableToRead(state, restore)};
}

bool LeavesWithUnsaved(const State& state, const JobRecord& job, const RestorePoint& restore) {
  if (!IsUnsaved(job, restore)) return false;
  const RestorePoint without = ChooseRestorePoint(state, job, Stays);
  return !without.version || without.step < restore.step;
}

bool IsAboutToSave(const JobRecord& job) {
  return job.patience.what == Patience::For::kSave || job.patience.save_due;
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
  if (job.patience.silent_over || !Loses(job, restore)) return false;
  if (!MayReturn(transition.state(), job)) return false;
  Have(transition, job, Patience::For::kSilent, kDetectionTime);
  return true;
}

}  // namespace sherd
