#include "worker/holdings/holding_store.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

// Of which it is known that they have ended; a worker's memory does not grow with their number.
constexpr size_t kRememberedJobs = 256;

}  // namespace

absl::Status HoldingStore::CheckOpen(const HoldingKey& key) const {
  const auto sealed = sealed_.find(key.job_id);
  if (sealed == sealed_.end() || key.epoch > sealed->second) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("epoch ", key.epoch, " of job ", key.job_id, " has ended here"));
}

absl::Status HoldingStore::Add(std::shared_ptr<HoldingSegment> segment) {
  absl::MutexLock lock(&mutex_);
  SHERD_RETURN_IF_ERROR(CheckOpen(segment->key()));
  segments_[segment->key()] = std::move(segment);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingStore::Make(const HoldingKey& key,
                                                                   int64_t slot_bytes) {
  // Outside the lock: large memory takes its time.
  SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                         HoldingSegment::Create(key, slot_bytes));
  SHERD_RETURN_IF_ERROR(Add(segment));
  return segment;
}

absl::Status HoldingStore::Keep(std::shared_ptr<HoldingSegment> segment) {
  return Add(std::move(segment));
}

std::shared_ptr<HoldingSegment> HoldingStore::Find(const HoldingKey& key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = segments_.find(key);
  return found == segments_.end() ? nullptr : found->second;
}

std::vector<v1::Holding> HoldingStore::Seal(const std::string& job_id, int64_t epoch) {
  absl::MutexLock lock(&mutex_);
  int64_t& sealed = sealed_[job_id];
  sealed = std::max(sealed, epoch);
  std::vector<v1::Holding> held;
  for (const auto& [key, segment] : segments_) {
    if (key.job_id != job_id) continue;
    if (key.epoch <= epoch) segment->Fence();
    for (int slot = 0; slot < HoldingSegment::kSlots; ++slot) {
      if (std::optional<v1::Holding> version = segment->Held(slot)) {
        held.push_back(*std::move(version));
      }
    }
  }
  return held;
}

void HoldingStore::Retain(const std::string& job_id, int64_t epoch) {
  // Unmapped outside the lock.
  std::vector<std::shared_ptr<HoldingSegment>> dropped;
  absl::MutexLock lock(&mutex_);
  for (auto entry = segments_.begin(); entry != segments_.end();) {
    const bool drop = entry->first.job_id == job_id && entry->first.epoch < epoch;
    if (drop) dropped.push_back(std::move(entry->second));
    entry = drop ? segments_.erase(entry) : std::next(entry);
  }
}

void HoldingStore::Forget(const std::string& job_id) {
  {
    // What comes late is not taken in.
    absl::MutexLock lock(&mutex_);
    sealed_[job_id] = std::numeric_limits<int64_t>::max();
    if (sealed_.size() > kRememberedJobs) {
      const auto oldest =
          sealed_.begin()->first == job_id ? std::next(sealed_.begin()) : sealed_.begin();
      sealed_.erase(oldest);
    }
  }
  Retain(job_id, std::numeric_limits<int64_t>::max());
}

bool HoldingStore::empty() const {
  absl::MutexLock lock(&mutex_);
  return segments_.empty();
}

}  // namespace sherd
