#include "worker/train/step_commits.h"

#include <utility>

#include "common/check.h"
#include "plan/holdings.h"

namespace sherd {
namespace {

absl::Status Fenced() { return absl::AbortedError("the epoch has ended without this process"); }

}  // namespace

StepCommits::StepCommits(HoldingSegment* segment, std::function<void(const v1::StepReport&)> report)
    : segment_(segment), report_(std::move(report)) {
  if (segment_ != nullptr) thread_ = std::thread([this] { Work(); });
}

StepCommits::~StepCommits() {
  if (segment_ == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

bool StepCommits::Complete(int slot, int64_t step) {
  return segment_->Complete(slot, step, segment_->Checksum(slot));
}

absl::Status StepCommits::Restored(int64_t step) {
  if (segment_ != nullptr && step > 0 && !Complete(newest_slot_, step)) return Fenced();
  committed_ = step;
  return absl::OkStatus();
}

absl::Status StepCommits::AwaitStored() {
  if (segment_ == nullptr) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  const auto stored = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !storing_.has_value(); };
  mutex_.Await(absl::Condition(&stored));
  return fenced_ ? Fenced() : absl::OkStatus();
}

void StepCommits::Commit() {
  if (!last_.has_value()) return;
  const v1::StepReport report = *std::exchange(last_, std::nullopt);
  committed_ = report.step();
  if (report_) report_(report);
}

absl::Status StepCommits::BeginUpdate() {
  if (segment_ == nullptr || segment_->Invalidate(NextSlot(newest_slot_))) return absl::OkStatus();
  return Fenced();
}

void StepCommits::Store(const v1::StepReport& report) {
  SHERD_CHECK(!last_.has_value());
  last_ = report;
  if (segment_ == nullptr) return;
  segment_->Report(report);
  absl::MutexLock lock(&mutex_);
  newest_slot_ = NextSlot(newest_slot_);
  storing_ = report.step();
}

void StepCommits::Work() {
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || storing_.has_value();
  };
  while (true) {
    int64_t step = 0;
    int slot = 0;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&wanted));
      if (!storing_.has_value()) return;
      step = *storing_;
      slot = newest_slot_;
    }
    const bool stored = Complete(slot, step);
    absl::MutexLock lock(&mutex_);
    storing_.reset();
    fenced_ = fenced_ || !stored;
  }
}

}  // namespace sherd
