#include "coordinator/core/next_epoch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/epoch_end.h"
#include "coordinator/core/trials.h"
#include "plan/holdings.h"

namespace sherd {
namespace {

constexpr double kMillisecondsPerSecond = 1000;

std::string DescribePoint(const RestorePoint& restore) {
  if (restore.version) return absl::StrCat("goes on after step ", restore.step);
  if (!restore.checkpoint.empty()) {
    return absl::StrCat("goes on after step ", restore.step, ", from checkpoint ",
                        restore.checkpoint);
  }
  return restore.step > 0 ? absl::StrCat("goes on after step ", restore.step,
                                         ", from another checkpoint than was known")
                          : "begins at the start";
}

// Committed steps that the job's epoch has to train again.
void RollBack(Transition& transition, JobRecord& job) {
  const RestorePoint& restore = job.restore;
  if (restore.step < job.step) {
    job.high_step = std::max(job.high_step, job.step);
    v1::JobEvent event;
    v1::Rollback& rollback = *event.mutable_rollback();
    rollback.set_from_step(job.step);
    rollback.set_to_step(restore.step);
    rollback.set_reason(absl::StrCat("no living worker holds all of a later step (", job.cause,
                                     "); training ", DescribePoint(restore)));
    transition.Publish(job, std::move(event));
  }
  job.step = restore.step;
}

// Should the next epochs fail, too.
void RememberCause(JobRecord& job) {
  if (job.fruitless == 0 || job.save_and_stop || job.end_kind == EndKind::kPlan) return;
  job.past_causes.push_back(job.cause);
  if (job.past_causes.size() >= kMostFruitless) job.past_causes.erase(job.past_causes.begin());
}

void NameHolders(Transition& transition, JobRecord& job) {
  job.holders.clear();
  // What is measured with is forgotten.
  if (IsUndecided(job)) return;
  const std::vector<std::vector<WorkerId>> chosen = ChooseHolders(transition.state(), job);
  std::set<WorkerId> known;
  for (const RankState& rank : job.ranks) known.insert(rank.worker);
  for (size_t rank = 0; rank < chosen.size(); ++rank) {
    job.ranks[rank].holders = chosen[rank];
    for (const WorkerId& holder : chosen[rank]) {
      if (!known.insert(holder).second) continue;
      job.holders.push_back({holder, transition.Worker(holder)->incarnation, false});
    }
  }
  // Who is read from is of the epoch, too, until it has restored: one that has died unheard of must
  // not be planned on again and again.
  for (const auto& [part, sources] : job.restore.parts) {
    for (const PartHolder& source : sources) {
      if (!known.insert(source.worker).second) continue;
      job.holders.push_back({source.worker, source.incarnation, false, /*source=*/true});
    }
  }
}

// Fewer copies than wanted are said, and hold nobody up.
void WarnOfFewCopies(Transition& transition, const JobRecord& job) {
  if (IsUndecided(job)) return;
  const int64_t wanted = WantedCopies(job.spec);
  const int64_t fewest = FewestCopies(job);
  if (fewest >= wanted) return;
  v1::JobEvent event;
  event.mutable_warning()->set_kind("replicas");
  event.mutable_warning()->set_rank(-1);
  event.mutable_warning()->set_text(
      absl::StrCat("elastic.replicas asks for ", Counted(wanted, "copy", "copies"),
                   " of every shard beside its rank's own, and there are workers for ", fewest,
                   "; more workers make more possible when the job's world forms again"));
  transition.Publish(job, std::move(event));
}

void WarnOfMixedNumerics(Transition& transition, const JobRecord& job) {
  const WorkerState& first = *transition.Worker(job.ranks.front().worker);
  for (const RankState& rank : job.ranks) {
    const WorkerState& other = *transition.Worker(rank.worker);
    if (other.numerics_fingerprint == first.numerics_fingerprint) continue;
    return transition.Tell(
        job, absl::StrCat("the world is mixed: ", first.id.value(), " computes with \"",
                          first.numerics_fingerprint, "\", ", other.id.value(), " with \"",
                          other.numerics_fingerprint,
                          "\"; bits are not promised to be equal to those of other runs"));
  }
}

std::string FormingSentence(const JobRecord& job) {
  std::string text = absl::StrCat("epoch ", job.epoch.value(), " forms on ",
                                  Counted(static_cast<int64_t>(job.ranks.size()), "worker"));
  if (IsUndecided(job)) {
    absl::StrAppend(&text, ": ", DescribeMeasurement(job));
    // Why the one before it ended, should it begin again.
    if (job.end_kind == EndKind::kPlan) return text;
  } else if (job.save_and_stop) {
    absl::StrAppend(&text, " to save step ", job.restore.step, " as a checkpoint");
  } else if (job.epoch > FirstEpochOf(job)) {
    absl::StrAppend(&text, " and ", DescribePoint(job.restore));
  }
  if (!job.cause.empty()) absl::StrAppend(&text, "; ", job.cause);
  return text;
}

}  // namespace

RestorePoint ChooseRestorePoint(const State& state, const JobRecord& job,
                                bool (*counts)(const WorkerState&)) {
  RestorePoint point;
  std::vector<Holder> holders;
  for (const auto& [worker, answer] : job.answers) {
    if (!IsAlive(state, worker, answer.incarnation)) continue;
    if (!counts(*FindWorker(state, worker))) continue;
    holders.push_back({worker.value(), answer.holdings});
  }
  const int64_t restored = RestoredEpoch(job.restored.value(), job.starts, holders);
  point.version =
      ChooseVersion([&job](int64_t epoch) { return LayoutOf(job, epoch); }, restored, holders);
  // A process that had been given up may hold, whole, what is older than what was saved since.
  const bool outdated =
      point.version && job.checkpoint && job.checkpoint->step > point.version->step;
  if (outdated) point.version.reset();
  if (!point.version) {
    if (!job.checkpoint) return point;
    point.checkpoint = job.checkpoint->path;
    point.step = job.checkpoint->step;
    return point;
  }
  point.step = point.version->step;
  const int world = point.version->world;
  const v1::ParallelSpec& layout = *LayoutOf(job, point.version->epoch);
  for (const auto& [worker, answer] : job.answers) {
    if (!IsAlive(state, worker, answer.incarnation)) continue;
    if (!counts(*FindWorker(state, worker))) continue;
    for (const v1::Holding& held : answer.holdings) {
      if (VersionOf(held) != *point.version || held.owner() < 0 || held.owner() >= world) continue;
      point.parts[PartOf(layout, world, held.owner())].push_back(
          {held.owner(), worker, answer.incarnation});
    }
  }
  return point;
}

std::optional<std::set<std::string>> ReadersOf(const State& state, const RestorePoint& restore) {
  std::optional<std::set<std::string>> readers;
  for (const auto& [part, holders] : restore.parts) {
    std::set<std::string> near;
    bool open = false;
    for (const PartHolder& holder : holders) {
      const WorkerState& source = *FindWorker(state, holder.worker);
      near.insert(MemoryDomainOf(source));
      open = open || !source.network_address.empty();
    }
    if (open) continue;
    if (!readers) {
      readers = std::move(near);
    } else {
      std::erase_if(*readers, [&](const std::string& name) { return !near.contains(name); });
    }
  }
  return readers;
}

void FormEpoch(Transition& transition, JobRecord& job, const std::vector<WorkerId>& workers,
               RestorePoint restore, bool save_and_stop) {
  std::erase(transition.state().queue, job.id);
  job.waiting = Waiting::kNone;
  RememberCause(job);
  // No number is given twice, not even one that only workers remember.
  job.epoch = Epoch(std::max(job.epoch, job.told_epoch).value() + 1);
  NoteEpoch(job);
  if (IsUndecided(job)) {
    job.restore = {};
    job.start_known = true;
  } else {
    job.starts[job.epoch.value()] = restore.step;
    job.restore = std::move(restore);
    job.start_known = job.restore.version.has_value();
    if (job.start_known) RollBack(transition, job);
  }
  job.save_and_stop = save_and_stop;
  job.progressed = job.announced = job.paused = job.aborted = job.holders_asked = false;
  job.suspicion = false;
  job.complaints.clear();
  job.patience = {};
  job.told_copies = -1;
  job.times.assigned = transition.now();
  if (job.usual_world == 0) job.usual_world = static_cast<int64_t>(workers.size());
  job.ranks.clear();
  for (const WorkerId& id : workers) {
    WorkerState& worker = *transition.Worker(id);
    const Seat seat{job.id, job.epoch, static_cast<int>(job.ranks.size())};
    worker.seat = seat;
    job.ranks.push_back({id, worker.incarnation, RankPhase::kForming, "", false, {}});
  }
  NameHolders(transition, job);
  // Whoever stores for others knows it before they come.
  for (auto& [id, owners] : StoredOverNetwork(transition.state(), job)) {
    const Incarnation incarnation = transition.Worker(id)->incarnation;
    transition.Act(SendHold{id, incarnation, job.id, job.epoch, std::move(owners)});
  }
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankState& state = job.ranks[rank];
    const Seat seat{job.id, job.epoch, static_cast<int>(rank)};
    transition.Act(SendAssign{state.worker, state.incarnation, seat});
  }
  transition.Enter(job, v1::JOB_STATE_FORMING, FormingSentence(job));
  WarnOfMixedNumerics(transition, job);
  WarnOfFewCopies(transition, job);
  transition.Act(StartFormationTimer{job.id, job.epoch});
}

void SettleStart(Transition& transition, JobRecord& job, int64_t step) {
  if (std::exchange(job.start_known, true)) return;
  // Workers of an earlier version do not say it.
  if (step > 0 && step != job.restore.step) {
    job.restore.checkpoint.clear();
    job.restore.step = step;
    job.starts[job.epoch.value()] = step;
    // What it was is damaged.
    if (job.checkpoint) job.checkpoint->step = std::min(job.checkpoint->step, step);
  }
  // Reports that were on the way to a coordinator which was away are lost with their sender.
  if (job.epoch > FirstEpochOf(job) && job.restore.step > job.step) {
    transition.Tell(job, absl::StrCat("a checkpoint of step ", job.restore.step,
                                      " was found; what was reported ends with step ", job.step,
                                      ", the figures of those between are lost"));
  }
  RollBack(transition, job);
}

void RunEpoch(Transition& transition, JobRecord& job) {
  if (IsUndecided(job)) {
    job.times.running = transition.now();
    std::erase_if(job.holders, [](const CopyHolder& holder) { return holder.returned; });
    return transition.Enter(job, v1::JOB_STATE_RUNNING, DescribeMeasurement(job));
  }
  SettleStart(transition, job, /*step=*/0);
  const bool first = job.restored == Epoch();
  job.restored = job.epoch;
  job.starts.clear();
  job.silent.clear();
  if (!job.save_and_stop) job.usual_world = static_cast<int64_t>(job.ranks.size());
  job.times.running = transition.now();
  transition.Enter(job, v1::JOB_STATE_RUNNING, "");
  // Before the first epoch there is nothing older.
  if (job.epoch.value() > 1) transition.Retain(job, /*ended=*/false);
  std::erase_if(job.holders,
                [](const CopyHolder& holder) { return holder.source || holder.returned; });
  // The first step may be heard of before the last rank's readiness.
  if (!first && job.progressed && !job.save_and_stop) AnnounceEpoch(transition, job);
  if (!first) return;
  job.announced = true;
  v1::JobEvent formed;
  formed.mutable_epoch()->set_epoch(job.epoch.value());
  formed.mutable_epoch()->set_world(static_cast<int32_t>(job.ranks.size()));
  formed.mutable_epoch()->set_reason("every rank is ready");
  formed.mutable_epoch()->set_resumed_step(job.restore.step);
  transition.Publish(job, std::move(formed));
}

void AnnounceEpoch(Transition& transition, JobRecord& job) {
  if (std::exchange(job.announced, true)) return;
  v1::JobEvent event;
  v1::EpochReport& report = *event.mutable_epoch();
  report.set_epoch(job.epoch.value());
  report.set_world(static_cast<int32_t>(job.ranks.size()));
  report.set_reason(job.cause);
  report.set_resumed_step(job.restore.step);
  const EpochTimes& times = job.times;
  const int64_t forming =
      std::clamp<int64_t>(times.forming, 0, std::max<int64_t>(0, times.running - times.assigned));
  const auto add = [&](const char* phase, int64_t milliseconds) {
    (*report.mutable_recovery_seconds())[phase] =
        static_cast<double>(milliseconds) / kMillisecondsPerSecond;
  };
  add("detect", times.ended - times.struck);
  add("abort", times.answered - times.ended);
  add("reform", times.assigned - times.answered + forming);
  add("restore", times.running - times.assigned - forming);
  add("first_step", transition.now() - times.running);
  transition.Publish(job, std::move(event));
}

}  // namespace sherd
