#include "coordinator/runtime/hang_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "coordinator/runtime/hang_verdict.h"
#include "coordinator/runtime/state_time.h"

namespace sherd {
namespace {

constexpr int kDetectionTimes = 10;
constexpr int kStepTimes = 5;
// Of which the median is taken.
constexpr size_t kLastSteps = 16;

bool IsSamePlace(const v1::RankPosition& a, const v1::RankPosition& b) {
  return a.step() == b.step() && a.operation() == b.operation() && a.waiting() == b.waiting();
}

bool AnyMoved(const Positions& before, const Positions& after) {
  return std::any_of(after.begin(), after.end(), [&](const auto& entry) {
    const auto earlier = before.find(entry.first);
    return earlier != before.end() && !IsSamePlace(earlier->second, entry.second);
  });
}

}  // namespace

HangWatch::HangWatch(const HangOptions& options, const Clock& clock, const Journal& journal,
                     RankLooks& looks, Append append)
    : options_(options),
      clock_(clock),
      journal_(journal),
      looks_(looks),
      append_(std::move(append)) {}

absl::Duration HangWatch::PatienceOf(const JobRecord& job) const {
  const int64_t own = job.spec.elastic().failure_detection_ms();
  absl::Duration patience =
      kDetectionTimes * (own > 0 ? absl::Milliseconds(own) : options_.failure_detection);
  // It restored already, or has trained, and has all state to write.
  const bool trained = journal_.feed().ProgressOf(job.id).step >= job.spec.train().steps();
  if (job.save_and_stop || trained) {
    return std::max(patience, options_.first_step_time) + StateTime(job.spec);
  }
  if (!job.progressed) return std::max(patience, options_.first_step_time);
  const auto found = watches_.find(job.id);
  if (found == watches_.end() || found->second.step_ms.empty()) return patience;
  std::vector<double> times(found->second.step_ms.begin(), found->second.step_ms.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return std::max(patience, kStepTimes * absl::Milliseconds(*middle));
}

void HangWatch::Postpone(absl::Duration pause) {
  for (auto& [id, watch] : watches_) {
    watch.since += pause;
    watch.stepped += pause;
    // Infinite when nobody was asked.
    watch.halfway_at += pause;
  }
}

void HangWatch::Watch::BeginAnew(absl::Time now) {
  since = now;
  verdict_look = 0;
  copying = CopyProgress();
  halfway_at = absl::InfiniteFuture();
  halfway_look = 0;
}

bool HangWatch::IsWatched(const JobRecord& job) { return job.state == v1::JOB_STATE_RUNNING; }

bool HangWatch::Moves(const JobRecord& job, Watch& watch, absl::Time now) const {
  const Progress progress = journal_.feed().ProgressOf(job.id);
  const int64_t checkpoint_step = job.checkpoint ? job.checkpoint->step : 0;
  const int64_t finished =
      std::count_if(job.ranks.begin(), job.ranks.end(),
                    [](const RankState& rank) { return rank.phase == RankPhase::kFinished; });
  if (watch.epoch != job.epoch) {
    watch = Watch();
    watch.epoch = job.epoch;
    watch.stepped = now;
    if (job.progressed) watch.step_ms.push_back(progress.step_ms);
  } else if (progress.step != watch.step) {
    watch.stepped = now;
    // Those of an epoch before it say nothing of this world.
    if (job.progressed) watch.step_ms.push_back(progress.step_ms);
    if (watch.step_ms.size() > kLastSteps) watch.step_ms.pop_front();
  } else if (progress.eval_step == watch.eval_step && checkpoint_step == watch.checkpoint_step &&
             finished == watch.finished) {
    return false;
  }
  watch.step = progress.step;
  watch.eval_step = progress.eval_step;
  watch.checkpoint_step = checkpoint_step;
  watch.finished = finished;
  return true;
}

void HangWatch::Check(absl::Time now) {
  std::erase_if(watches_, [this](const auto& entry) {
    const JobRecord* job = FindJob(journal_.state(), entry.first);
    return job == nullptr || !IsWatched(*job);
  });
  for (const auto& [id, job] : journal_.state().jobs) {
    if (!IsWatched(job)) continue;
    Watch& watch = watches_[id];
    if (Moves(job, watch, now)) watch.BeginAnew(now);
    const absl::Duration patience = PatienceOf(job);
    if (watch.halfway_look == 0 && now - watch.since > patience / 2) {
      const int64_t look = watch.halfway_look = ++last_look_;
      watch.halfway_at = now;
      watch.halfway.clear();
      looks_.Look(job,
                  [this, look](const JobRecord& asked, const Positions& first,
                               const Positions& second) { Remember(asked, look, first, second); });
    }
    if (watch.verdict_look != 0 || now - watch.since <= patience) continue;
    // Both would see the same.
    if (now - watch.halfway_at <= patience / 4) continue;
    const int64_t look = watch.verdict_look = ++last_look_;
    looks_.Look(job, [this, look](const JobRecord& asked, const Positions& first,
                                  const Positions& second) { Judge(asked, look, first, second); });
  }
}

void HangWatch::Remember(const JobRecord& job, int64_t look, const Positions& first,
                         const Positions& second) {
  const auto found = watches_.find(job.id);
  if (found == watches_.end() || found->second.halfway_look != look) return;
  found->second.halfway = second;
  // Who did not answer in time the second time.
  found->second.halfway.insert(first.begin(), first.end());
}

void HangWatch::Judge(const JobRecord& job, int64_t look, const Positions& first,
                      const Positions& second) {
  const auto found = watches_.find(job.id);
  if (found == watches_.end() || !IsWatched(job)) return;
  Watch& watch = found->second;
  if (watch.verdict_look != look) return;
  const absl::Time now = clock_.Now();
  const bool moves = AnyMoved(first, second);
  const bool copies = watch.copying.Judge(first, second, now);
  const bool moved = AnyMoved(watch.halfway, second);
  if (moves || copies || moved) {
    // A long evaluation, a slow disk or network, a crowded host: it is looked at again later. Who
    // moved at some time since halfway may have stopped right then.
    watch.since = moves || copies ? now : watch.halfway_at;
    watch.halfway_at = absl::InfiniteFuture();
    watch.halfway_look = watch.verdict_look = 0;
    return;
  }
  const HangVerdict verdict = JudgeHang(job, second, now - watch.stepped);
  Convict(job, verdict.rank, verdict.sentence, now - watch.since);
}

void HangWatch::Convict(const JobRecord& job, int rank, const std::string& verdict,
                        absl::Duration stalled) {
  v1::DurableEvent event;
  v1::HangDetected& hang = *event.mutable_hang_detected();
  hang.set_job_id(job.id.value());
  hang.set_epoch(job.epoch.value());
  hang.set_step(journal_.feed().ProgressOf(job.id).step);
  hang.set_rank(rank);
  hang.set_verdict(verdict);
  hang.set_stalled_ms(absl::ToInt64Milliseconds(stalled));
  append_(std::move(event));
}

}  // namespace sherd
