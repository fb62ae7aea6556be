#include "worker/comm/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr int64_t PageCeil(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}
constexpr int64_t kControlBytes = PageCeil(sizeof(ControlBlock));

absl::Status NoMemory(int64_t bytes, absl::string_view why) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for a shared segment of ", bytes, " bytes: ", why));
}

// What can be had without swapping, by the kernel's estimate. The kernel would rather kill a
// process than refuse shared memory, so the refusal has to be ours.
int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::numeric_limits<int64_t>::max();
}

bool TakePages(int descriptor, int64_t bytes) {
  int result;
  do {
    result = ::fallocate(descriptor, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void* MapPart(int descriptor, int64_t offset, int64_t bytes, int protection) {
  if (bytes == 0) return nullptr;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED, descriptor,
                        static_cast<off_t>(offset));
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

int64_t SharedSegment::control_bytes() { return kControlBytes; }

SharedSegment::~SharedSegment() {
  if (control_ != nullptr) ::munmap(static_cast<void*>(control_), kControlBytes);
  if (arena_ != nullptr) ::munmap(arena_, static_cast<size_t>(arena_bytes_));
}

void SharedSegment::swap(SharedSegment& other) noexcept {
  std::swap(control_, other.control_);
  std::swap(arena_, other.arena_);
  std::swap(arena_bytes_, other.arena_bytes_);
}

absl::StatusOr<SharedSegment> SharedSegment::MapBoth(int64_t arena_bytes, int descriptor,
                                                     int arena_protection) {
  SharedSegment segment;
  segment.control_ =
      static_cast<ControlBlock*>(MapPart(descriptor, 0, kControlBytes, PROT_READ | PROT_WRITE));
  segment.arena_ =
      static_cast<std::byte*>(MapPart(descriptor, kControlBytes, arena_bytes, arena_protection));
  segment.arena_bytes_ = arena_bytes;
  if (segment.control_ == nullptr || (segment.arena_ == nullptr && arena_bytes > 0)) {
    return NoMemory(arena_bytes, std::strerror(errno));
  }
  return segment;
}

absl::StatusOr<SharedSegment> SharedSegment::Create(int64_t arena_bytes,
                                                    FileDescriptor* descriptor) {
  if (arena_bytes < 0) return absl::InvalidArgumentError("an arena of negative size");
  const int64_t available = AvailableBytes();
  if (arena_bytes > available - kControlBytes) {
    return NoMemory(arena_bytes, absl::StrCat(available, " bytes are available"));
  }
  const int64_t bytes = kControlBytes + PageCeil(arena_bytes);
  *descriptor = FileDescriptor(::memfd_create("sherd-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Pages are taken now: running out of them later would be a SIGBUS in the middle of a step.
  if (!descriptor->valid() || ::ftruncate(descriptor->get(), bytes) != 0 ||
      !TakePages(descriptor->get(), bytes) ||
      ::fcntl(descriptor->get(), F_ADD_SEALS, kSeals) != 0) {
    return NoMemory(arena_bytes, std::strerror(errno));
  }
  SHERD_ASSIGN_OR_RETURN(SharedSegment segment,
                         MapBoth(arena_bytes, descriptor->get(), PROT_READ | PROT_WRITE));
  new (segment.control_) ControlBlock();
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
  return MapBoth(arena_bytes, descriptor.get(), PROT_READ);
}

}  // namespace sherd
