#include "worker/comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <new>

#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr int64_t kControlBytes = PageCeil(sizeof(ControlBlock));

}  // namespace

int64_t SharedSegment::control_bytes() { return kControlBytes; }

absl::StatusOr<SharedSegment> SharedSegment::MapBoth(int64_t arena_bytes,
                                                     const FileDescriptor& descriptor) {
  SharedSegment segment;
  SHERD_ASSIGN_OR_RETURN(segment.control_,
                         PageMapping::Map(descriptor, 0, kControlBytes, PROT_READ | PROT_WRITE));
  SHERD_ASSIGN_OR_RETURN(segment.arena_, PageMapping::Map(descriptor, kControlBytes, arena_bytes,
                                                          PROT_READ | PROT_WRITE));
  segment.arena_bytes_ = arena_bytes;
  return segment;
}

absl::StatusOr<SharedSegment> SharedSegment::Create(int64_t arena_bytes,
                                                    FileDescriptor* descriptor) {
  SHERD_ASSIGN_OR_RETURN(*descriptor, NewPages(arena_bytes, kControlBytes));
  SHERD_ASSIGN_OR_RETURN(SharedSegment segment, MapBoth(arena_bytes, *descriptor));
  new (&segment.control()) ControlBlock();
  return segment;
}

absl::StatusOr<SharedSegment> SharedSegment::Map(int64_t arena_bytes,
                                                 const FileDescriptor& descriptor) {
  struct stat file = {};
  if (arena_bytes < 0 || !descriptor.valid() || ::fstat(descriptor.get(), &file) != 0 ||
      file.st_size < kControlBytes || file.st_size - kControlBytes < arena_bytes) {
    return absl::InvalidArgumentError("not a segment of the size stated");
  }
  // Reading a page that was cut off is a SIGBUS.
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("not a segment: it may shrink");
  }
  return MapBoth(arena_bytes, descriptor);
}

}  // namespace sherd
