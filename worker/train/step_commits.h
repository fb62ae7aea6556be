#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/events.pb.h"
#include "worker/holdings/holding_segment.h"

namespace sherd {

// Commits a rank's steps. A step is committed when every rank has stored the version that it left:
// each enters the exchange of the next step only when its own is stored, so whoever comes back from
// there knows that all are. Storing, which is the checksum and the header, runs on a thread of its
// own beside the next forward. Its other calls come from the trainer's thread.
class StepCommits {
 public:
  // `segment` may be null: then steps are committed without being stored. `report`, which may be
  // empty, hears of every step that is committed, once and in order.
  StepCommits(HoldingSegment* segment, std::function<void(const v1::StepReport&)> report);
  // Waits for what is being stored.
  ~StepCommits();
  StepCommits(const StepCommits&) = delete;

  // Errors are kAborted: the epoch has ended, and others have told what is held of it; nothing more
  // may be stored or updated in it.

  // What training starts from: slot 0, which holds `step` whole. Stores it before it returns.
  absl::Status Restored(int64_t step);

  // Before an exchange: returns when the last step is stored.
  absl::Status AwaitStored() ABSL_LOCKS_EXCLUDED(mutex_);
  // After one: all ranks have stored the last step.
  void Commit();
  // Before an update writes: the slot that does not hold the newest version stops holding any.
  absl::Status BeginUpdate();
  // The update has left `report`'s step there: starts storing it.
  void Store(const v1::StepReport& report) ABSL_LOCKS_EXCLUDED(mutex_);

  // The last committed step; 0: none.
  int64_t committed() const { return committed_; }

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Complete(int slot, int64_t step);

  HoldingSegment* const segment_;
  const std::function<void(const v1::StepReport&)> report_;
  int newest_slot_ = 0;
  std::optional<v1::StepReport> last_;  // stored or about to be, and not committed
  int64_t committed_ = 0;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> storing_ ABSL_GUARDED_BY(mutex_);  // the step, in newest_slot_
  std::thread thread_;
};

}  // namespace sherd
