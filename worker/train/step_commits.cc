#include "worker/train/step_commits.h"

#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "plan/holdings.h"

namespace sherd {
namespace {

absl::Status Fenced() { return absl::AbortedError("the epoch has ended without this process"); }

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

StepCommits::StepCommits(HoldingSegment* segment, std::function<void(const v1::StepReport&)> report)
    : segment_(segment), report_(std::move(report)) {
  if (segment_ != nullptr) thread_ = std::thread([this] { Work(); });
}

StepCommits::~StepCommits() {
  if (segment_ == nullptr) return;
  for (const std::unique_ptr<RemoteCopy>& copy : copies_) copy->Leave();
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status StepCommits::Complete(int slot, int64_t step, const VersionFigures& figures,
                                   const CopyWatch& watch) {
  SHERD_ASSIGN_OR_RETURN(const uint64_t checksum, segment_->Checksum(slot, watch));
  return segment_->Complete(slot, step, checksum, figures) ? absl::OkStatus() : Fenced();
}

absl::Status StepCommits::Restored(int64_t step, const VersionFigures& figures,
                                   const CopyWatch& watch) {
  if (segment_ != nullptr && step > 0) {
    SHERD_RETURN_IF_ERROR(Complete(newest_slot_, step, figures, watch));
  }
  committed_ = step;
  return absl::OkStatus();
}

absl::Status StepCommits::CopyTo(std::vector<std::unique_ptr<RemoteCopy>> copies) {
  SHERD_CHECK(segment_ != nullptr && copies_.empty() && !last_.has_value());
  copies_ = std::move(copies);
  return committed_ == 0 ? absl::OkStatus() : Copy(newest_slot_, /*reports_after=*/0);
}

absl::Status StepCommits::Copy(int slot, int64_t reports_after) {
  if (copies_.empty()) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  absl::Status copied;
  // One's answer is awaited while the others' bytes are on their way.
  for (const std::unique_ptr<RemoteCopy>& copy : copies_) {
    if (copied.ok()) copied = copy->Send(slot, reports_after);
  }
  for (const std::unique_ptr<RemoteCopy>& copy : copies_) {
    if (copied.ok()) copied = copy->AwaitStored();
  }
  absl::MutexLock lock(&mutex_);
  costs_.seconds += SecondsSince(start);
  costs_.bytes = 0;
  for (const std::unique_ptr<RemoteCopy>& copy : copies_) costs_.bytes += copy->sent_bytes();
  return copied;
}

absl::Status StepCommits::AwaitStored() {
  if (segment_ == nullptr) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  absl::MutexLock lock(&mutex_);
  const auto stored = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !storing_.has_value(); };
  mutex_.Await(absl::Condition(&stored));
  costs_.waiting_seconds += SecondsSince(start);
  return failure_;
}

void StepCommits::Commit() {
  if (!last_.has_value()) return;
  const v1::StepReport report = *std::exchange(last_, std::nullopt);
  committed_ = report.step();
  if (segment_ == nullptr) {
    reports_.push_back(report);
    if (reports_.size() > static_cast<size_t>(HoldingSegment::kReports)) reports_.pop_front();
  }
  if (report_) report_(report);
}

std::vector<v1::StepReport> StepCommits::LastReports(int64_t after) const {
  if (segment_ != nullptr) return segment_->Reports(after, committed_);
  std::vector<v1::StepReport> last(reports_.begin(), reports_.end());
  std::erase_if(last, [after](const v1::StepReport& report) { return report.step() <= after; });
  return last;
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
  storing_ = report;
}

CopyCosts StepCommits::costs() const {
  absl::MutexLock lock(&mutex_);
  return costs_;
}

absl::Status StepCommits::StoreIn(int slot, const v1::StepReport& report) {
  SHERD_RETURN_IF_ERROR(Complete(slot, report.step(), {report.skipped_windows(), report.loss()},
                                 /*watch=*/nullptr));
  return Copy(slot, /*reports_after=*/report.step() - 1);
}

void StepCommits::Work() {
  const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stopping_ || storing_.has_value();
  };
  while (true) {
    v1::StepReport report;
    int slot = 0;
    {
      absl::MutexLock lock(&mutex_, absl::Condition(&wanted));
      if (!storing_.has_value()) return;
      report = *storing_;
      slot = newest_slot_;
    }
    const absl::Status stored = StoreIn(slot, report);
    absl::MutexLock lock(&mutex_);
    storing_.reset();
    failure_.Update(stored);
  }
}

}  // namespace sherd
