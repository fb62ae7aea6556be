#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/worker.pb.h"
#include "worker/comm/event_signal.h"
#include "worker/comm/pages.h"
#include "worker/holdings/holding_segment.h"

namespace sherd {

// All stored shards that a worker process holds, its own and others', and whom it stores more for.
// They outlive the trainers that write them, until they are told not to be needed any more. Each
// comes with its epoch's secret, which opens it to other hosts; "" opens it to nobody. Thread-safe.
class HoldingStore {
 public:
  // Makes its segments out of one budget: owners that come at the same time do not count on the
  // same free memory. `available_bytes`: of this machine.
  explicit HoldingStore(std::function<int64_t()> available_bytes = AvailableBytes)
      : budget_(std::move(available_bytes)) {}

  // Makes the segment of a rank of this process. kFailedPrecondition for an epoch that has been
  // sealed; errors of HoldingSegment::Create.
  absl::StatusOr<std::shared_ptr<HoldingSegment>> Make(const HoldingKey& key, int64_t slot_bytes,
                                                       absl::string_view secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps a rank's of another process. kFailedPrecondition as above.
  absl::Status Keep(std::shared_ptr<HoldingSegment> segment, absl::string_view secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // nullptr when the process has none.
  std::shared_ptr<HoldingSegment> Find(const HoldingKey& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  // For those who know the secret. kNotFound; kPermissionDenied.
  absl::StatusOr<std::shared_ptr<HoldingSegment>> FindFor(const HoldingKey& key,
                                                          absl::string_view secret) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Ranks on other hosts may come and have their shards stored, until the epoch is sealed or of the
  // past. Replaces what was said of the job and its older epochs.
  void Expect(const v1::Hold& hold) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the owner may come; what tells that its time is over. kNotFound: not yet, for it has
  // not been heard of here; kFailedPrecondition: its epoch is over; kPermissionDenied;
  // kResourceExhausted: the process has no descriptor left to tell it by.
  absl::StatusOr<std::shared_ptr<const EventSignal>> Admit(const HoldingKey& key,
                                                           absl::string_view secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes a segment for one that may. Errors of Admit and Make; kAlreadyExists when there is one.
  absl::StatusOr<std::shared_ptr<HoldingSegment>> MakeFor(const HoldingKey& key, int64_t slot_bytes,
                                                          absl::string_view secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of all that MakeFor has made of the epoch.
  int64_t BytesFor(absl::string_view job_id, int64_t epoch) const ABSL_LOCKS_EXCLUDED(mutex_);

  // All whole versions of the job. From now on nothing of this epoch or an older one is taken in,
  // and segments of these epochs are fenced, so that the answer stays true whoever still writes to
  // them; those that hold nothing are dropped. The caller sees to it that no trainer of this
  // process is left.
  std::vector<v1::Holding> Seal(const std::string& job_id, int64_t epoch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops what is older than `epoch`, or all of a job that has ended, and takes in none of it from
  // now on.
  void Retain(const std::string& job_id, int64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);

  bool empty() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    std::shared_ptr<HoldingSegment> segment;
    std::string secret;
    bool made_for_other = false;
  };
  // The newest Hold of a job.
  struct Expected {
    int64_t epoch = 0;
    int world = 0;
    std::set<int> owners;
    std::string secret;
    std::shared_ptr<const EventSignal> over;  // null until an owner has come
  };

  absl::Status Add(Kept kept) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckOpen(const std::string& job_id, int64_t epoch) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckExpected(const HoldingKey& key, absl::string_view secret) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Nobody is expected for this epoch of the job or an older one.
  void ExpectNone(const std::string& job_id, int64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RememberEnded(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PageBudget budget_;
  mutable absl::Mutex mutex_;
  std::map<HoldingKey, Kept> segments_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Expected> expected_ ABSL_GUARDED_BY(mutex_);  // by job
  // The newest epoch of each job that nothing is taken in for.
  std::map<std::string, int64_t> sealed_ ABSL_GUARDED_BY(mutex_);
  // Of these the jobs that have ended, the longest ago first.
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
