#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "sherd/v1/events.pb.h"
#include "worker/holdings/holding_segment.h"

namespace sherd {

// All stored shards that a worker process holds, its own and others'. They outlive the trainers
// that write them, until they are told not to be needed any more. Thread-safe.
class HoldingStore {
 public:
  // Makes the segment of a rank of this process. kFailedPrecondition for an epoch that has been
  // sealed; errors of HoldingSegment::Create.
  absl::StatusOr<std::shared_ptr<HoldingSegment>> Make(const HoldingKey& key, int64_t slot_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps a rank's of another process. kFailedPrecondition as above.
  absl::Status Keep(std::shared_ptr<HoldingSegment> segment) ABSL_LOCKS_EXCLUDED(mutex_);
  // nullptr when the process has none.
  std::shared_ptr<HoldingSegment> Find(const HoldingKey& key) const ABSL_LOCKS_EXCLUDED(mutex_);

  // All whole versions of the job. From now on nothing of this epoch or an older one is taken in,
  // and segments of these epochs are fenced, so that the answer stays true whoever still writes to
  // them. The caller sees to it that no writer of this process is left.
  std::vector<v1::Holding> Seal(const std::string& job_id, int64_t epoch)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops what is older than `epoch`, or all of a job that has ended.
  void Retain(const std::string& job_id, int64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);

  bool empty() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status Add(std::shared_ptr<HoldingSegment> segment) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckOpen(const HoldingKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<HoldingKey, std::shared_ptr<HoldingSegment>> segments_ ABSL_GUARDED_BY(mutex_);
  // The newest epoch of each job that nothing is taken in for.
  std::map<std::string, int64_t> sealed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
