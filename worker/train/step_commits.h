#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/events.pb.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/holding_segment.h"
#include "worker/holdings/remote_copy.h"

namespace sherd {

// What copies on other hosts have cost so far.
struct CopyCosts {
  int64_t bytes = 0;           // sent
  double seconds = 0;          // of the thread that stores
  double waiting_seconds = 0;  // of the trainer, for the last step to be stored, copies or not
};

// Commits a rank's steps. A step is committed when every rank has stored the version that it left,
// in its segment and in its copies on other hosts: each enters the exchange of the next step only
// when its own is stored, so whoever comes back from there knows that all are. Storing, which is
// the checksum, the header and sending, runs on a thread of its own beside the next step up to its
// exchange. Its other calls come from the trainer's thread.
class StepCommits {
 public:
  // `segment` may be null: then steps are committed without being stored. `report`, which may be
  // empty, hears of every step that is committed, once and in order.
  StepCommits(HoldingSegment* segment, std::function<void(const v1::StepReport&)> report);
  // Waits for what is being stored, and ends what is being sent.
  ~StepCommits();
  StepCommits(const StepCommits&) = delete;

  // Errors are kAborted: the epoch has ended, and others have told what is held of it; nothing more
  // may be stored or updated in it. And those of RemoteCopy.

  // What training starts from: slot 0, which holds `step` whole. Stores it before it returns;
  // `watch` goes along.
  absl::Status Restored(int64_t step, const VersionFigures& figures = {},
                        const CopyWatch& watch = nullptr);
  // From now on versions are stored there too: what it starts from, if that is one, before this
  // returns. Before the first step.
  absl::Status CopyTo(std::vector<std::unique_ptr<RemoteCopy>> copies);

  // Before an exchange: returns when the last step is stored.
  absl::Status AwaitStored() ABSL_LOCKS_EXCLUDED(mutex_);
  // After one: all ranks have stored the last step.
  void Commit();
  // Before an update writes: the slot that does not hold the newest version stops holding any.
  absl::Status BeginUpdate();
  // The update has left `report`'s step there: starts storing it.
  void Store(const v1::StepReport& report) ABSL_LOCKS_EXCLUDED(mutex_);

  // The reports of the last committed steps after `after`, in order: those that are stored, or as
  // many of this epoch's.
  std::vector<v1::StepReport> LastReports(int64_t after) const;
  // The last committed step; 0: none.
  int64_t committed() const { return committed_; }
  // The last step is being stored elsewhere too: who waits for it waits for others.
  bool copies() const { return !copies_.empty(); }
  CopyCosts costs() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status StoreIn(int slot, const v1::StepReport& report);
  absl::Status Complete(int slot, int64_t step, const VersionFigures& figures,
                        const CopyWatch& watch);
  // To all copies at the same time.
  absl::Status Copy(int slot, int64_t reports_after) ABSL_LOCKS_EXCLUDED(mutex_);

  HoldingSegment* const segment_;
  const std::function<void(const v1::StepReport&)> report_;
  int newest_slot_ = 0;
  std::optional<v1::StepReport> last_;  // stored or about to be, and not committed
  int64_t committed_ = 0;
  std::deque<v1::StepReport> reports_;  // of committed steps, without a segment
  std::vector<std::unique_ptr<RemoteCopy>> copies_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::StepReport> storing_ ABSL_GUARDED_BY(mutex_);  // in newest_slot_
  CopyCosts costs_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sherd
