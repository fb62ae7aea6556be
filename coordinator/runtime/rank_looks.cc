#include "coordinator/runtime/rank_looks.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "common/printable_text.h"
#include "coordinator/runtime/copy_progress.h"

namespace sherd {
namespace {

// A rank answers at once.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(500);
constexpr size_t kMostOperationBytes = 256;
// Or a process that is always late would never come to a verdict.
constexpr int kMostLateQuestions = 3;

}  // namespace

RankLooks::RankLooks(absl::Duration failure_detection, const Clock& clock, const Journal& journal,
                     TimerQueue& timers, Send send)
    : failure_detection_(failure_detection),
      clock_(clock),
      journal_(journal),
      timers_(timers),
      send_(std::move(send)) {}

void RankLooks::Look(const JobRecord& job, Then then) {
  const int64_t number = ++last_number_;
  OneLook& look = looks_[number];
  look.job = job.id;
  look.epoch = job.epoch;
  look.then = std::move(then);
  look.since = clock_.Now();
  Put(number, look, job);
}

void RankLooks::Put(int64_t number, OneLook& look, const JobRecord& job) {
  look.question = ++last_question_;
  Ask(number, look, job);
}

void RankLooks::Ask(int64_t number, OneLook& look, const JobRecord& job) {
  v1::SessionResponse message;
  message.mutable_locate()->set_job_id(job.id.value());
  message.mutable_locate()->set_epoch(job.epoch.value());
  message.mutable_locate()->set_question(look.question);
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (look.answers().contains(static_cast<int>(rank))) continue;
    send_(job.ranks[rank].worker, job.ranks[rank].incarnation, message);
  }
  look.due = clock_.Now() + kAnswerTime;
  timers_.At(look.due, [this, number] { End(number); });
}

void RankLooks::Postpone(absl::Duration pause) {
  for (auto& [number, look] : looks_) {
    look.since += pause;
    look.due += pause;
  }
}

bool RankLooks::AwaitsMore(OneLook& look, const JobRecord& job) const {
  const int64_t own = job.spec.elastic().failure_detection_ms();
  const absl::Duration patience = own > 0 ? absl::Milliseconds(own) : failure_detection_;
  if (clock_.Now() - look.since >= patience) return false;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    if (!job.ranks[rank].left && !look.answers().contains(static_cast<int>(rank))) return true;
  }
  return false;
}

void RankLooks::End(int64_t number) {
  const auto found = looks_.find(number);
  OneLook& asked = found->second;
  const JobRecord* job = FindJob(journal_.state(), asked.job);
  if (job == nullptr || job->epoch != asked.epoch) {
    looks_.erase(found);
    return;
  }
  // This process was late; its workers were not, and their answers may be the next that it reads.
  if (clock_.Now() - asked.due > kAnswerTime && asked.late++ < kMostLateQuestions) {
    asked.answers().clear();
    asked.since = clock_.Now();
    return Put(number, asked, *job);
  }
  if (AwaitsMore(asked, *job)) return Ask(number, asked, *job);
  if (!std::exchange(asked.again, true)) return Put(number, asked, *job);
  // It may look again at once.
  const OneLook look = std::move(asked);
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
    // 0: of a worker that does not number its answers.
    if (position.question() != 0 && position.question() != look.question) continue;
    look.answers()[position.rank()] = kept;
  }
}

}  // namespace sherd
