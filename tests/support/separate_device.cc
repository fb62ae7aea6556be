#include "tests/support/separate_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"

namespace sherd {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

class SeparateDevice::Fence final : public DeviceFence {
 public:
  Lane lane = Lane::kCompute;
  int64_t count = 0;
};

class SeparateDevice::StatusMark final : public DeviceMark {
 public:
  explicit StatusMark(const SeparateDevice& device) : device_(device) {}
  bool passed() override {
    absl::MutexLock lock(&device_.mutex_);
    return !device_.hangs_ || !device_.status_.ok();
  }

 private:
  const SeparateDevice& device_;
};

SeparateDevice::~SeparateDevice() {
  SHERD_CHECK(used_bytes() == 0);
  SHERD_CHECK(locked_bytes() == 0);
}

void SeparateDevice::Fail(const absl::Status& error) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) status_ = error;
}

void SeparateDevice::Refuse(Pool pool) {
  absl::MutexLock lock(&mutex_);
  refused_ = pool;
}

void SeparateDevice::Hang(bool hangs) {
  absl::MutexLock lock(&mutex_);
  hangs_ = hangs;
}

int64_t SeparateDevice::most_used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return most_used_;
}

int64_t SeparateDevice::used_bytes() const {
  absl::MutexLock lock(&mutex_);
  return used_;
}

int64_t SeparateDevice::bytes_in() const {
  absl::MutexLock lock(&mutex_);
  return in_;
}

int64_t SeparateDevice::bytes_out() const {
  absl::MutexLock lock(&mutex_);
  return out_;
}

int64_t SeparateDevice::locked_bytes() const {
  absl::MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& [piece, piece_bytes] : locked_pieces_) bytes += piece_bytes;
  return bytes;
}

void SeparateDevice::RefuseLocked() {
  absl::MutexLock lock(&mutex_);
  refuses_locked_ = true;
}

int64_t SeparateDevice::lane_bytes(Lane lane) const {
  absl::MutexLock lock(&mutex_);
  return lane_bytes_[static_cast<size_t>(lane)];
}

std::unique_ptr<Ops> SeparateDevice::MakeOps(const DeviceOpsOptions& options) {
  return MakeCpuOps(1, *options.meter);
}

bool SeparateDevice::Holds(const void* begin, int64_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(begin);
  auto piece = pieces_.upper_bound(first);
  if (piece == pieces_.begin()) return false;
  --piece;
  return first + bytes <= piece->first + piece->second;
}

void SeparateDevice::CheckSides(const void* device, const void* host, int64_t bytes) const {
  if (bytes == 0 || sides_ == Sides::kAny) return;
  SHERD_CHECK(Holds(device, bytes));
  SHERD_CHECK(!Holds(host, 1));
}

void SeparateDevice::CopyIn(void* to, const void* from, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return;
  CheckSides(to, from, bytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  in_ += bytes;
}

void SeparateDevice::CopyOut(void* to, const void* from, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok()) return;
  CheckSides(from, to, bytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  out_ += bytes;
}

void SeparateDevice::CopyWithin(void* to, const void* from, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok() || to == from || bytes == 0) return;
  SHERD_CHECK(Holds(to, bytes) && Holds(from, bytes));
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::shared_ptr<DeviceMark> SeparateDevice::Mark() { return std::make_shared<StatusMark>(*this); }

absl::Status SeparateDevice::Fetch(void* to, const void* from, int64_t bytes) {
  if (before_copies_ != nullptr) before_copies_();
  CopyOut(to, from, bytes);
  return status();
}

absl::Status SeparateDevice::Deliver(void* to, const void* from, int64_t bytes) {
  if (before_copies_ != nullptr) before_copies_();
  CopyIn(to, from, bytes);
  return status();
}

absl::Status SeparateDevice::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::byte* SeparateDevice::LockedMemory::Take(Pool pool, int64_t bytes) {
  if (bytes == 0) return nullptr;
  {
    absl::MutexLock lock(&device_.mutex_);
    if (!device_.status_.ok()) return nullptr;
    if (device_.refuses_locked_) {
      device_.status_ = absl::ResourceExhaustedError(absl::StrCat(
          device_.name(), ": ", bytes, " locked bytes for ", NameOf(pool), " cannot be had"));
      return nullptr;
    }
  }
  auto* const piece = static_cast<std::byte*>(std::calloc(static_cast<size_t>(bytes), 1));
  SHERD_CHECK(piece != nullptr);
  device_.Lock(piece, bytes);
  return piece;
}

void SeparateDevice::LockedMemory::Give(std::byte* memory) {
  if (memory == nullptr) return;
  device_.Unlock(memory);
  std::free(memory);
}

void SeparateDevice::Lock(void* begin, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (refuses_locked_ && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat(name(), ": ", bytes, " bytes of the host cannot be locked"));
  }
  if (!status_.ok()) return;
  locked_pieces_.emplace(static_cast<const std::byte*>(begin), bytes);
}

void SeparateDevice::Unlock(void* begin) {
  Synchronize().IgnoreError();
  absl::MutexLock lock(&mutex_);
  const bool was_locked = locked_pieces_.erase(static_cast<const std::byte*>(begin)) == 1;
  SHERD_CHECK(was_locked || !status_.ok());
}

bool SeparateDevice::IsLocked(const void* begin, int64_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(begin);
  auto piece = locked_pieces_.upper_bound(first);
  if (piece == locked_pieces_.begin()) return false;
  --piece;
  return first + bytes <= piece->first + piece->second;
}

std::unique_ptr<DeviceFence> SeparateDevice::MakeFence() { return std::make_unique<Fence>(); }

int64_t SeparateDevice::Enqueued(Lane lane) const {
  const auto at = static_cast<size_t>(lane);
  return done_[at] + static_cast<int64_t>(waiting_[at].size());
}

void SeparateDevice::Record(Lane lane, DeviceFence& fence) {
  absl::MutexLock lock(&mutex_);
  auto& recorded = static_cast<Fence&>(fence);
  recorded.lane = lane;
  recorded.count = Enqueued(lane);
}

void SeparateDevice::Await(Lane lane, const DeviceFence& fence) {
  absl::MutexLock lock(&mutex_);
  const auto& awaited = static_cast<const Fence&>(fence);
  if (lane == Lane::kCompute) {
    RunUntil(awaited.lane, awaited.count);
  } else {
    waiting_[static_cast<size_t>(lane)].push_back({nullptr, awaited.lane, awaited.count});
  }
}

void SeparateDevice::Copy(Lane lane, void* to, const void* from, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (!status_.ok() || bytes == 0) return;
  const bool in = lane == Lane::kIn;
  SHERD_CHECK(in || lane == Lane::kOut);
  SHERD_CHECK(Holds(in ? to : from, bytes) && IsLocked(in ? from : to, bytes));
  waiting_[static_cast<size_t>(lane)].push_back(
      {[=] { std::memcpy(to, from, static_cast<size_t>(bytes)); }});
  lane_bytes_[static_cast<size_t>(lane)] += bytes;
}

void SeparateDevice::RunUntil(Lane lane, int64_t count) {
  const auto at = static_cast<size_t>(lane);
  while (done_[at] < count) {
    const Work work = std::move(waiting_[at].front());
    waiting_[at].pop_front();
    if (work.copy != nullptr) {
      work.copy();
    } else {
      RunUntil(work.awaited, work.until);
    }
    ++done_[at];
  }
}

absl::Status SeparateDevice::Synchronize() {
  absl::MutexLock lock(&mutex_);
  for (const Lane lane : {Lane::kOut, Lane::kIn}) RunUntil(lane, Enqueued(lane));
  return status_;
}

std::byte* SeparateDevice::Take(Pool pool, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (bytes == 0 || !status_.ok()) return nullptr;
  if (used_ + bytes > bytes_ || pool == refused_) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat(name(), ": ", bytes, " bytes for ", NameOf(pool), " cannot be had"));
    return nullptr;
  }
  const int64_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const piece =
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(whole)));
  SHERD_CHECK(piece != nullptr);
  std::memset(piece, 0, static_cast<size_t>(whole));
  pieces_.emplace(piece, bytes);
  used_ += bytes;
  if (pool == Pool::kScratch) {
    scratch_.insert(piece);
  } else {
    used_beside_scratch_ += bytes;
    most_used_ = std::max(most_used_, used_beside_scratch_);
  }
  return piece;
}

void SeparateDevice::Give(std::byte* memory) {
  if (memory == nullptr) return;
  absl::MutexLock lock(&mutex_);
  const auto piece = pieces_.find(memory);
  SHERD_CHECK(piece != pieces_.end());
  used_ -= piece->second;
  if (scratch_.erase(memory) == 0) used_beside_scratch_ -= piece->second;
  pieces_.erase(piece);
  std::free(memory);
}

}  // namespace sherd
