#include "worker/holdings/holding_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/holdings/checksum_stream.h"

namespace sherd {
namespace {

// So that no size that is made of it overflows.
constexpr int64_t kMostSlotBytes = INT64_MAX / 4;

constexpr uint64_t kMagic = 0x3230444c4f484853;  // "SHHOLD02"

// Both are read by processes other than the one that writes.
struct SlotHead {
  std::atomic<int64_t> step;
  std::atomic<uint64_t> checksum;
  std::atomic<int64_t> skipped_windows;
  std::atomic<double> loss;
};

// In one word, so that a fence cannot come between a look and a mark: which slots hold whole
// versions, whether there is a fence, and above that a number that grows with every change, so that
// a reader sees one.
constexpr uint64_t WholeBit(int slot) { return uint64_t{1} << slot; }
constexpr uint64_t kFenceBit = uint64_t{1} << HoldingSegment::kSlots;
constexpr uint64_t kChange = kFenceBit << 1;

struct ReportHead {
  std::atomic<int64_t> step;
  double loss;
  double grad_norm;
  double lr;
  int64_t tokens;
  double tokens_per_second;
  double step_ms;
  double exposed_ms;
  int64_t skipped_windows;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<double>::is_always_lock_free);

}  // namespace

struct HoldingSegment::Head {
  uint64_t magic;
  int64_t epoch;
  int32_t world;
  int32_t owner;
  int64_t slot_bytes;
  std::atomic<uint64_t> marks;
  std::array<SlotHead, kSlots> slots;

  // Clears and sets bits of the marks unless there is a fence.
  bool Mark(uint64_t cleared, uint64_t set) {
    uint64_t seen = marks.load(std::memory_order_relaxed);
    do {
      if ((seen & kFenceBit) != 0) return false;
    } while (!marks.compare_exchange_weak(seen, ((seen & ~cleared) | set) + kChange,
                                          std::memory_order_seq_cst));
    return true;
  }

  std::array<ReportHead, kReports> reports;
};

int64_t HoldingSegment::head_bytes() { return PageCeil(sizeof(Head)); }

HoldingSegment::Head& HoldingSegment::head() const {
  return *reinterpret_cast<Head*>(head_.begin());
}

std::byte* HoldingSegment::slot(int index) const {
  return slots_[static_cast<size_t>(index)].begin();
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingSegment::MapAll(const HoldingKey& key,
                                                                       int64_t slot_bytes,
                                                                       FileDescriptor descriptor) {
  std::shared_ptr<HoldingSegment> segment(
      new HoldingSegment(key, slot_bytes, std::move(descriptor)));
  const FileDescriptor& pages = segment->descriptor_;
  SHERD_ASSIGN_OR_RETURN(segment->head_,
                         PageMapping::Map(pages, 0, head_bytes(), PROT_READ | PROT_WRITE));
  for (int index = 0; index < kSlots; ++index) {
    SHERD_ASSIGN_OR_RETURN(segment->slots_[static_cast<size_t>(index)],
                           PageMapping::Map(pages, head_bytes() + index * PageCeil(slot_bytes),
                                            slot_bytes, PROT_READ | PROT_WRITE));
  }
  return segment;
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingSegment::Create(const HoldingKey& key,
                                                                       int64_t slot_bytes) {
  PageBudget budget;
  return Create(key, slot_bytes, budget);
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingSegment::Create(const HoldingKey& key,
                                                                       int64_t slot_bytes,
                                                                       PageBudget& budget) {
  if (slot_bytes < 0 || slot_bytes >= kMostSlotBytes) {
    return absl::InvalidArgumentError(absl::StrCat("no stored shard has ", slot_bytes, " bytes"));
  }
  SHERD_ASSIGN_OR_RETURN(FileDescriptor pages,
                         NewPages(kSlots * PageCeil(slot_bytes), head_bytes(), budget));
  SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                         MapAll(key, slot_bytes, std::move(pages)));
  Head& head = *new (segment->head_.begin()) Head();
  head.epoch = key.epoch;
  head.world = key.world;
  head.owner = key.owner;
  head.slot_bytes = slot_bytes;
  head.magic = kMagic;
  return segment;
}

absl::StatusOr<std::shared_ptr<HoldingSegment>> HoldingSegment::Map(const HoldingKey& key,
                                                                    int64_t slot_bytes,
                                                                    FileDescriptor descriptor) {
  struct stat file = {};
  // Reading a page that was cut off is a SIGBUS.
  const int seals = descriptor.valid() ? ::fcntl(descriptor.get(), F_GET_SEALS) : -1;
  const bool sound = slot_bytes >= 0 && slot_bytes < kMostSlotBytes && seals >= 0 &&
                     (seals & F_SEAL_SHRINK) != 0 && ::fstat(descriptor.get(), &file) == 0 &&
                     file.st_size == head_bytes() + kSlots * PageCeil(slot_bytes);
  if (!sound) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a segment of stored shards of ", slot_bytes, " bytes"));
  }
  SHERD_ASSIGN_OR_RETURN(std::shared_ptr<HoldingSegment> segment,
                         MapAll(key, slot_bytes, std::move(descriptor)));
  const Head& head = segment->head();
  if (head.magic != kMagic || head.slot_bytes != slot_bytes || head.epoch != key.epoch ||
      head.world != key.world || head.owner != key.owner) {
    return absl::InvalidArgumentError(
        absl::StrCat("not the stored shard of rank ", key.owner, " in epoch ", key.epoch));
  }
  return segment;
}

bool HoldingSegment::Invalidate(int index) { return head().Mark(WholeBit(index), 0); }

bool HoldingSegment::Complete(int index, int64_t step, uint64_t checksum,
                              const VersionFigures& figures) {
  SlotHead& slot = head().slots[static_cast<size_t>(index)];
  slot.step.store(step, std::memory_order_relaxed);
  slot.checksum.store(checksum, std::memory_order_relaxed);
  slot.skipped_windows.store(figures.skipped_windows, std::memory_order_relaxed);
  slot.loss.store(figures.loss, std::memory_order_relaxed);
  return head().Mark(0, WholeBit(index));
}

void HoldingSegment::Fence() { head().Mark(0, kFenceBit); }

void HoldingSegment::Discard(int index) {
  head().marks.fetch_and(~WholeBit(index), std::memory_order_seq_cst);
}

uint64_t HoldingSegment::Checksum(int index) const {
  return XXH3_64bits(slot(index), static_cast<size_t>(slot_bytes_));
}

absl::StatusOr<uint64_t> HoldingSegment::Checksum(int index, const CopyWatch& watch) const {
  if (!watch) return Checksum(index);
  ChecksumStream checksum;
  for (int64_t at = 0; at < slot_bytes_; at += kWatchedBytes) {
    const int64_t piece = std::min(kWatchedBytes, slot_bytes_ - at);
    checksum.Add(slot(index) + at, piece);
    SHERD_RETURN_IF_ERROR(watch(piece));
  }
  return checksum.Sum();
}

std::optional<v1::Holding> HoldingSegment::Held(int index) const {
  const SlotHead& slot = head().slots[static_cast<size_t>(index)];
  while (true) {
    const uint64_t before = head().marks.load(std::memory_order_acquire);
    if ((before & WholeBit(index)) == 0) return std::nullopt;
    v1::Holding held;
    held.set_epoch(key_.epoch);
    held.set_world(key_.world);
    held.set_owner(key_.owner);
    // Acquired, so that the marks are read again after them.
    held.set_step(slot.step.load(std::memory_order_acquire));
    held.set_checksum(slot.checksum.load(std::memory_order_acquire));
    // A writer changes marks a few times a step.
    if (head().marks.load(std::memory_order_relaxed) == before) return held;
  }
}

VersionFigures HoldingSegment::Figures(int index) const {
  const SlotHead& slot = head().slots[static_cast<size_t>(index)];
  return {slot.skipped_windows.load(std::memory_order_relaxed),
          slot.loss.load(std::memory_order_relaxed)};
}

int HoldingSegment::FindStep(int64_t step) const {
  for (int index = 0; index < kSlots; ++index) {
    const std::optional<v1::Holding> held = Held(index);
    if (held.has_value() && held->step() == step) return index;
  }
  return -1;
}

void HoldingSegment::Report(const v1::StepReport& report) {
  ReportHead& kept = head().reports[static_cast<size_t>(report.step() % kReports)];
  kept.step.store(0, std::memory_order_release);
  kept.loss = report.loss();
  kept.grad_norm = report.grad_norm();
  kept.lr = report.lr();
  kept.tokens = report.tokens();
  kept.tokens_per_second = report.tokens_per_second();
  kept.step_ms = report.step_ms();
  kept.exposed_ms = report.exposed_ms();
  kept.skipped_windows = report.skipped_windows();
  kept.step.store(report.step(), std::memory_order_release);
}

std::vector<v1::StepReport> HoldingSegment::Reports(int64_t after, int64_t last) const {
  std::vector<v1::StepReport> reports;
  for (int64_t step = std::max(after, last - kReports) + 1; step <= last; ++step) {
    const ReportHead& kept = head().reports[static_cast<size_t>(step % kReports)];
    if (kept.step.load(std::memory_order_acquire) != step) continue;
    v1::StepReport report;
    report.set_step(step);
    report.set_epoch(key_.epoch);
    report.set_loss(kept.loss);
    report.set_grad_norm(kept.grad_norm);
    report.set_lr(kept.lr);
    report.set_tokens(kept.tokens);
    report.set_tokens_per_second(kept.tokens_per_second);
    report.set_step_ms(kept.step_ms);
    report.set_exposed_ms(kept.exposed_ms);
    report.set_skipped_windows(kept.skipped_windows);
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace sherd
