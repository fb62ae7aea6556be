#include "coordinator/runtime/rank_looks.h"

#include <memory>
#include <utility>

#include "common/printable_text.h"
#include "coordinator/runtime/copy_progress.h"

namespace sherd {
namespace {

// A rank answers at once.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);
constexpr size_t kMostOperationBytes = 256;

}  // namespace

RankLooks::RankLooks(const Clock& clock, const Journal& journal, TimerQueue& timers, Send send)
    : clock_(clock), journal_(journal), timers_(timers), send_(std::move(send)) {}

void RankLooks::Look(const JobRecord& job, Then then) {
  const int64_t number = ++last_number_;
  looks_[number] = {
      .job = job.id, .epoch = job.epoch, .first = {}, .second = {}, .then = std::move(then)};
  Ask(job);
  timers_.At(clock_.Now() + kAnswerTime, [this, number] { End(number); });
}

void RankLooks::Ask(const JobRecord& job) {
  v1::SessionResponse message;
  message.mutable_locate()->set_job_id(job.id.value());
  message.mutable_locate()->set_epoch(job.epoch.value());
  for (const RankState& rank : job.ranks) send_(rank.worker, rank.incarnation, message);
}

void RankLooks::End(int64_t number) {
  const auto found = looks_.find(number);
  const JobRecord* job = FindJob(journal_.state(), found->second.job);
  if (job == nullptr || job->epoch != found->second.epoch) {
    looks_.erase(found);
    return;
  }
  if (!std::exchange(found->second.again, true)) {
    Ask(*job);
    timers_.At(clock_.Now() + kAnswerTime, [this, number] { End(number); });
    return;
  }
  // It may look again at once.
  const OneLook look = std::move(found->second);
  looks_.erase(found);
  look.then(*job, look.first, look.second);
}

void RankLooks::ExpireUnlessCopying(const JobRecord& job, absl::Duration grace,
                                    std::function<void(const JobRecord& job)> expire) {
  struct Expiry {
    v1::JobState state;
    CopyProgress copying;
    std::function<void(const JobRecord& job)> expire;
    std::function<void(const JobRecord& job)> look;
  };
  const auto expiry = std::make_shared<Expiry>();
  expiry->state = job.state;
  expiry->expire = std::move(expire);
  const std::weak_ptr<Expiry> weak = expiry;
  expiry->look = [this, grace, weak](const JobRecord& now) {
    Look(now, [this, grace, kept = weak.lock()](const JobRecord& later, const Positions& first,
                                                const Positions& second) {
      if (later.state != kept->state) return;
      if (!kept->copying.Judge(first, second, clock_.Now())) return kept->expire(later);
      timers_.At(clock_.Now() + grace, [this, kept, id = later.id, epoch = later.epoch] {
        const JobRecord* record = FindJob(journal_.state(), id);
        if (record == nullptr || record->epoch != epoch || record->state != kept->state) return;
        kept->look(*record);
      });
    });
  };
  expiry->look(job);
}

void RankLooks::OnPosition(const WorkerId& worker, const v1::RankPosition& position) {
  const JobRecord* job = FindJob(journal_.state(), JobId(position.job_id()));
  if (job == nullptr || job->epoch != Epoch(position.epoch()) || position.rank() < 0 ||
      position.rank() >= static_cast<int32_t>(job->ranks.size()) ||
      job->ranks[position.rank()].worker != worker) {
    return;
  }
  v1::RankPosition kept = position;
  kept.set_operation(PrintableText(position.operation(), kMostOperationBytes));
  for (auto& [number, look] : looks_) {
    if (look.job != job->id || look.epoch != job->epoch) continue;
    (look.again ? look.second : look.first)[position.rank()] = kept;
  }
}

}  // namespace sherd
