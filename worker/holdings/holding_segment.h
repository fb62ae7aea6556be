#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sherd/v1/events.pb.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/pages.h"
#include "worker/holdings/copy_watch.h"

namespace sherd {

// Whose shard a segment holds: of rank `owner` of a world of `world` ranks in `epoch` of a job.
struct HoldingKey {
  std::string job_id;
  int64_t epoch = 0;
  int world = 0;
  int owner = 0;
  friend auto operator<=>(const HoldingKey&, const HoldingKey&) = default;
};

// What belongs to a version beside the shard.
struct VersionFigures {
  // Windows of samples that were skipped up to it.
  int64_t skipped_windows = 0;
  // Of its step; NaN: unknown.
  double loss = std::numeric_limits<double>::quiet_NaN();
};

// Where a rank keeps its shard, version by version: memory without a name that all who hold it map,
// and that lives as long as one of their processes. Two slots of `slot_bytes`, of each
// whether it holds a whole version, and the reports of the last steps. One process writes, at one
// moment one thread of it; any may read. Whoever tells the coordinator what is held fences the
// segment first: from then on no slot is marked, one way or the other, so that what was told stays
// true whatever a writer does that was frozen and thaws (docs/protocol-model.md).
class HoldingSegment {
 public:
  static constexpr int kSlots = 2;
  // The reports of so many steps are kept.
  static constexpr int kReports = 1024;
  // Beside the slots.
  static int64_t head_bytes();
  // Of the whole segment.
  int64_t bytes() const { return head_bytes() + kSlots * PageCeil(slot_bytes_); }

  // Makes a segment with zeroed slots out of `budget`. Errors of NewPages; kInvalidArgument for a
  // size that cannot be.
  static absl::StatusOr<std::shared_ptr<HoldingSegment>> Create(const HoldingKey& key,
                                                                int64_t slot_bytes,
                                                                PageBudget& budget);
  // For who takes memory alone.
  static absl::StatusOr<std::shared_ptr<HoldingSegment>> Create(const HoldingKey& key,
                                                                int64_t slot_bytes);
  // Maps another process's. kInvalidArgument when it is not one of `key` and that size.
  static absl::StatusOr<std::shared_ptr<HoldingSegment>> Map(const HoldingKey& key,
                                                             int64_t slot_bytes,
                                                             FileDescriptor descriptor);

  const HoldingKey& key() const { return key_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  std::byte* slot(int index) const;
  // To be passed on; stays the segment's.
  int descriptor() const { return descriptor_.get(); }

  // The slot holds nothing from here on. False, and nothing has changed, behind a fence: then the
  // writer must write no more.
  bool Invalidate(int index);
  // It holds `step` whole. The checksum is that of Checksum, after the last write. False as above.
  bool Complete(int index, int64_t step, uint64_t checksum, const VersionFigures& figures = {});
  void Fence();
  // A reader found that the slot's bytes are not those that were stored: nobody is to be told of it
  // any more. Also behind a fence.
  void Discard(int index);
  uint64_t Checksum(int index) const;
  // The same in pieces; the error of `watch`.
  absl::StatusOr<uint64_t> Checksum(int index, const CopyWatch& watch) const;
  // What the slot holds; nothing when that is no whole version, or was none at some moment of the
  // call.
  std::optional<v1::Holding> Held(int index) const;
  // Of the version that Held tells of.
  VersionFigures Figures(int index) const;
  // The slot that holds `step` whole; -1: none.
  int FindStep(int64_t step) const;

  // Keeps a step's report; before Complete of that step.
  void Report(const v1::StepReport& report);
  // Those that are kept of the steps after `after`, up to `last`, in order.
  std::vector<v1::StepReport> Reports(int64_t after, int64_t last) const;

 private:
  struct Head;

  HoldingSegment(const HoldingKey& key, int64_t slot_bytes, FileDescriptor descriptor)
      : key_(key), slot_bytes_(slot_bytes), descriptor_(std::move(descriptor)) {}
  static absl::StatusOr<std::shared_ptr<HoldingSegment>> MapAll(const HoldingKey& key,
                                                                int64_t slot_bytes,
                                                                FileDescriptor descriptor);
  Head& head() const;

  const HoldingKey key_;
  const int64_t slot_bytes_;
  const FileDescriptor descriptor_;
  PageMapping head_;
  std::array<PageMapping, kSlots> slots_;
};

}  // namespace sherd
