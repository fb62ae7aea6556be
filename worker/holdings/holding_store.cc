#include "worker/holdings/holding_store.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/link_message.h"

namespace sherd {
namespace {

// Of which it is known that they have ended; a worker's memory does not grow with their number.
constexpr size_t kRememberedJobs = 256;
constexpr int64_t kAllEpochs = std::numeric_limits<int64_t>::max();

}  // namespace

absl::Status HoldingStore::CheckOpen(const std::string& job_id, int64_t epoch) const {
  const auto sealed = sealed_.find(job_id);
  if (sealed == sealed_.end() || epoch > sealed->second) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("epoch ", epoch, " of job ", job_id, " has ended here"));
}

absl::Status HoldingStore::Add(Kept kept) {
  absl::MutexLock lock(&mutex_);
  const HoldingKey& key = kept.segment->key();
  SHERD_RETURN_IF_ERROR(CheckOpen(key.job_id, key.epoch));
  segments_[key] = std::move(kept);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingStore::Make(const HoldingKey& key,
                                                                   int64_t slot_bytes,
                                                                   absl::string_view secret) {
  // Outside the lock: large memory takes its time.
  SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                         HoldingSegment::Create(key, slot_bytes, budget_));
  SHERD_RETURN_IF_ERROR(Add({segment, std::string(secret), /*made_for_other=*/false}));
  return segment;
}

absl::Status HoldingStore::Keep(std::shared_ptr<HoldingSegment> segment, absl::string_view secret) {
  return Add({std::move(segment), std::string(secret), /*made_for_other=*/false});
}

std::shared_ptr<HoldingSegment> HoldingStore::Find(const HoldingKey& key) const {
  absl::MutexLock lock(&mutex_);
  const auto found = segments_.find(key);
  return found == segments_.end() ? nullptr : found->second.segment;
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingStore::FindFor(
    const HoldingKey& key, absl::string_view secret) const {
  absl::MutexLock lock(&mutex_);
  const auto found = segments_.find(key);
  if (found == segments_.end()) {
    return absl::NotFoundError(
        absl::StrCat("the process holds no shard of rank ", key.owner, " in epoch ", key.epoch));
  }
  if (secret.empty() || !EqualSecrets(secret, found->second.secret)) {
    return absl::PermissionDeniedError("wrong secret");
  }
  return found->second.segment;
}

void HoldingStore::Expect(const v1::Hold& hold) {
  absl::MutexLock lock(&mutex_);
  if (!CheckOpen(hold.job_id(), hold.epoch()).ok()) return;
  const auto found = expected_.find(hold.job_id());
  if (found != expected_.end() && found->second.epoch > hold.epoch()) return;
  // What is said again, by a coordinator that was started again, ends nothing.
  ExpectNone(hold.job_id(), hold.epoch() - 1);
  Expected& expected = expected_[hold.job_id()];
  expected.epoch = hold.epoch();
  expected.world = hold.world();
  expected.owners = {hold.owners().begin(), hold.owners().end()};
  expected.secret = hold.secret();
}

absl::Status HoldingStore::CheckExpected(const HoldingKey& key, absl::string_view secret) const {
  SHERD_RETURN_IF_ERROR(CheckOpen(key.job_id, key.epoch));
  const auto found = expected_.find(key.job_id);
  if (found == expected_.end() || found->second.epoch < key.epoch) {
    return absl::NotFoundError(absl::StrCat("the process was not told to store shards of epoch ",
                                            key.epoch, " of job ", key.job_id));
  }
  const Expected& expected = found->second;
  if (expected.epoch > key.epoch) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", key.epoch, " of job ", key.job_id,
                                                      " is over: epoch ", expected.epoch,
                                                      " is stored here"));
  }
  if (secret.empty() || !EqualSecrets(secret, expected.secret)) {
    return absl::PermissionDeniedError("wrong secret");
  }
  if (expected.world != key.world || !expected.owners.contains(key.owner)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the process is not to store the shard of rank ", key.owner, " of ", key.world));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const EventSignal>> HoldingStore::Admit(const HoldingKey& key,
                                                                       absl::string_view secret) {
  absl::MutexLock lock(&mutex_);
  SHERD_RETURN_IF_ERROR(CheckExpected(key, secret));
  std::shared_ptr<const EventSignal>& over = expected_.at(key.job_id).over;
  if (over == nullptr) {
    SHERD_ASSIGN_OR_RETURN(EventSignal made, EventSignal::Make());
    over = std::make_shared<const EventSignal>(std::move(made));
  }
  return over;
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingStore::MakeFor(const HoldingKey& key,
                                                                      int64_t slot_bytes,
                                                                      absl::string_view secret) {
  SHERD_RETURN_IF_ERROR(Admit(key, secret).status());
  if (Find(key) == nullptr) {
    // As in Make.
    SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                           HoldingSegment::Create(key, slot_bytes, budget_));
    absl::MutexLock lock(&mutex_);
    SHERD_RETURN_IF_ERROR(CheckExpected(key, secret));
    const auto [added, is_new] =
        segments_.try_emplace(key, Kept{segment, std::string(secret), /*made_for_other=*/true});
    if (is_new) return segment;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("the process stores the shard of rank ", key.owner, " already"));
}

int64_t HoldingStore::BytesFor(absl::string_view job_id, int64_t epoch) const {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& [key, kept] : segments_) {
    if (!kept.made_for_other || key.job_id != job_id || key.epoch != epoch) continue;
    bytes += kept.segment->bytes();
  }
  return bytes;
}

void HoldingStore::ExpectNone(const std::string& job_id, int64_t epoch) {
  const auto found = expected_.find(job_id);
  if (found == expected_.end() || found->second.epoch > epoch) return;
  if (found->second.over != nullptr) found->second.over->Set();
  expected_.erase(found);
}

std::vector<v1::Holding> HoldingStore::Seal(const std::string& job_id, int64_t epoch) {
  // Unmapped outside the lock.
  std::vector<std::shared_ptr<HoldingSegment>> dropped;
  absl::MutexLock lock(&mutex_);
  int64_t& sealed = sealed_[job_id];
  sealed = std::max(sealed, epoch);
  ExpectNone(job_id, epoch);
  std::vector<v1::Holding> held;
  for (auto entry = segments_.begin(); entry != segments_.end();) {
    const auto& [key, kept] = *entry;
    const size_t before = held.size();
    if (key.job_id == job_id) {
      if (key.epoch <= epoch) kept.segment->Fence();
      for (int slot = 0; slot < HoldingSegment::kSlots; ++slot) {
        if (std::optional<v1::Holding> version = kept.segment->Held(slot)) {
          held.push_back(*std::move(version));
        }
      }
    }
    // Behind the fence it never will hold anything: an epoch that failed to form needs no memory.
    const bool drop = key.job_id == job_id && key.epoch <= epoch && held.size() == before;
    if (drop) dropped.push_back(kept.segment);
    entry = drop ? segments_.erase(entry) : std::next(entry);
  }
  return held;
}

void HoldingStore::Retain(const std::string& job_id, int64_t epoch) {
  // Unmapped outside the lock.
  std::vector<std::shared_ptr<HoldingSegment>> dropped;
  absl::MutexLock lock(&mutex_);
  // Nor does it come late, from an owner that was frozen.
  int64_t& sealed = sealed_[job_id];
  sealed = std::max(sealed, epoch - 1);
  ExpectNone(job_id, epoch - 1);
  for (auto entry = segments_.begin(); entry != segments_.end();) {
    const bool drop = entry->first.job_id == job_id && entry->first.epoch < epoch;
    if (drop) dropped.push_back(std::move(entry->second.segment));
    entry = drop ? segments_.erase(entry) : std::next(entry);
  }
}

void HoldingStore::Forget(const std::string& job_id) {
  {
    // What comes late is not taken in.
    absl::MutexLock lock(&mutex_);
    sealed_[job_id] = kAllEpochs;
    RememberEnded(job_id);
    ExpectNone(job_id, kAllEpochs);
  }
  Retain(job_id, kAllEpochs);
}

void HoldingStore::RememberEnded(const std::string& job_id) {
  std::erase(ended_, job_id);
  ended_.push_back(job_id);
  if (ended_.size() <= kRememberedJobs) return;
  sealed_.erase(ended_.front());
  ended_.pop_front();
}

bool HoldingStore::empty() const {
  absl::MutexLock lock(&mutex_);
  return segments_.empty();
}

}  // namespace sherd
