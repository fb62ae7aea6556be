#include "coordinator/runtime/state_time.h"

#include <cstdint>

#include "plan/ledger.h"
#include "plan/model_shape.h"
#include "plan/parameters.h"

namespace sherd {
namespace {

constexpr int64_t kBytesPerSecond = 16 << 20;

}  // namespace

absl::Duration StateTime(const v1::JobSpec& spec) {
  const int64_t bytes = kVersionElementBytes * BuildInventory(ShapeOf(spec.model())).elements;
  return absl::Seconds(bytes / kBytesPerSecond);
}

bool ReadsState(const JobRecord& job) {
  const RestorePoint& restore = job.restore;
  return restore.version || !restore.checkpoint.empty() || !job.spec.checkpoint().resume().empty();
}

absl::Duration ReadyTime(const JobRecord& job, absl::Duration formation_time) {
  return ReadsState(job) ? formation_time + StateTime(job.spec) : formation_time;
}

}  // namespace sherd
