#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/control_block.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/pages.h"

namespace sherd {

// A mapping of one member's segment: its control block, then its arena. The memory has no name and
// lives as long as a descriptor or mapping of it, so that nothing outlives the processes.
class SharedSegment {
 public:
  SharedSegment() = default;

  // Makes and maps a segment with zeroed memory that cannot shrink or grow; `descriptor` is to be
  // passed to the other members. kResourceExhausted, naming the sizes, when memory does not
  // suffice.
  static absl::StatusOr<SharedSegment> Create(int64_t arena_bytes, FileDescriptor* descriptor);

  // Maps the segment of another member; all of it may be written to.
  // kInvalidArgument when the
  // descriptor is not such a segment.
  static absl::StatusOr<SharedSegment> Map(int64_t arena_bytes, const FileDescriptor& descriptor);

  // Of every segment, beside its arena.
  static int64_t control_bytes();

  bool mapped() const { return control_.begin() != nullptr; }
  ControlBlock& control() const { return *reinterpret_cast<ControlBlock*>(control_.begin()); }
  std::byte* arena() const { return arena_.begin(); }
  int64_t arena_bytes() const { return arena_bytes_; }

 private:
  static absl::StatusOr<SharedSegment> MapBoth(int64_t arena_bytes,
                                               const FileDescriptor& descriptor);

  PageMapping control_;
  PageMapping arena_;
  int64_t arena_bytes_ = 0;
};

}  // namespace sherd
