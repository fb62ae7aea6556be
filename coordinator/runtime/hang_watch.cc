#include "coordinator/runtime/hang_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/printable_text.h"
#include "coordinator/runtime/hang_verdict.h"
#include "coordinator/runtime/state_time.h"

namespace sherd {
namespace {

constexpr int kDetectionTimes = 10;
constexpr int kStepTimes = 5;
// Of which the median is taken.
constexpr size_t kLastSteps = 16;
// A rank answers at once.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);
constexpr size_t kMostOperationBytes = 256;

bool IsSamePlace(const v1::RankPosition& a, const v1::RankPosition& b) {
  return a.step() == b.step() && a.operation() == b.operation() && a.waiting() == b.waiting();
}

}  // namespace

HangWatch::HangWatch(const HangOptions& options, const Clock& clock, const Journal& journal,
                     TimerQueue& timers, Send send, Append append)
    : options_(options),
      clock_(clock),
      journal_(journal),
      timers_(timers),
      send_(std::move(send)),
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

bool HangWatch::IsWatched(const JobRecord& job) { return job.state == v1::JOB_STATE_RUNNING; }

bool HangWatch::Moves(const JobRecord& job, Watch& watch) const {
  const Progress progress = journal_.feed().ProgressOf(job.id);
  const int64_t checkpoint_step = job.checkpoint ? job.checkpoint->step : 0;
  const int64_t finished =
      std::count_if(job.ranks.begin(), job.ranks.end(),
                    [](const RankState& rank) { return rank.phase == RankPhase::kFinished; });
  if (watch.epoch != job.epoch) {
    watch = Watch();
    watch.epoch = job.epoch;
    if (job.progressed) watch.step_ms.push_back(progress.step_ms);
  } else if (progress.step != watch.step) {
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
  const absl::Duration gap = now - last_check_;
  const bool paused = last_check_ != absl::InfinitePast() && gap > 3 * options_.check_interval;
  last_check_ = now;
  std::erase_if(watches_, [this](const auto& entry) {
    const JobRecord* job = FindJob(journal_.state(), entry.first);
    return job == nullptr || !IsWatched(*job);
  });
  for (const auto& [id, job] : journal_.state().jobs) {
    if (!IsWatched(job)) continue;
    Watch& watch = watches_[id];
    // Nothing could be heard while this process itself did not run.
    if (paused) watch.since += gap;
    if (Moves(job, watch)) {
      watch.since = now;
      watch.asking = false;
    }
    if (watch.asking || now - watch.since <= PatienceOf(job)) continue;
    watch.asking = true;
    Ask(job, [this](const JobRecord& asked, Watch& first) {
      const Positions before = std::exchange(first.positions, {});
      Ask(asked,
          [this, before](const JobRecord& again, Watch& second) { Judge(again, second, before); });
    });
  }
}

void HangWatch::Ask(const JobRecord& job, std::function<void(const JobRecord&, Watch&)> then) {
  v1::SessionResponse message;
  message.mutable_locate()->set_job_id(job.id.value());
  message.mutable_locate()->set_epoch(job.epoch.value());
  for (const RankState& rank : job.ranks) send_(rank.worker, rank.incarnation, message);
  timers_.At(clock_.Now() + kAnswerTime,
             [this, id = job.id, epoch = job.epoch, then = std::move(then)] {
               const auto found = watches_.find(id);
               const JobRecord* record = FindJob(journal_.state(), id);
               if (found == watches_.end() || record == nullptr || !IsWatched(*record)) return;
               if (record->epoch != epoch || found->second.epoch != epoch || !found->second.asking)
                 return;
               then(*record, found->second);
             });
}

void HangWatch::OnPosition(const WorkerId& worker, const v1::RankPosition& position) {
  const auto found = watches_.find(JobId(position.job_id()));
  const JobRecord* job = FindJob(journal_.state(), JobId(position.job_id()));
  if (found == watches_.end() || job == nullptr || !found->second.asking) return;
  if (job->epoch != Epoch(position.epoch()) || position.rank() < 0 ||
      position.rank() >= static_cast<int32_t>(job->ranks.size()) ||
      job->ranks[position.rank()].worker != worker) {
    return;
  }
  v1::RankPosition& kept = found->second.positions[position.rank()];
  kept = position;
  kept.set_operation(PrintableText(position.operation(), kMostOperationBytes));
}

void HangWatch::Judge(const JobRecord& job, Watch& watch, const Positions& before) {
  const bool moves =
      std::any_of(watch.positions.begin(), watch.positions.end(), [&](const auto& entry) {
        const auto earlier = before.find(entry.first);
        return earlier != before.end() && !IsSamePlace(earlier->second, entry.second);
      });
  const absl::Duration stalled = clock_.Now() - watch.since;
  if (moves) {
    // A long evaluation, a slow disk: it is looked at again later.
    watch.since = clock_.Now();
    watch.asking = false;
    watch.positions.clear();
    return;
  }
  const HangVerdict verdict = JudgeHang(job, watch.positions, stalled);
  Convict(job, verdict.rank, verdict.sentence, stalled);
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
