#include "worker/comm/pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

absl::Status NoMemory(int64_t bytes, absl::string_view why) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for an arena of ", bytes, " bytes: ", why));
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

}  // namespace

absl::StatusOr<FileDescriptor> NewPages(int64_t arena_bytes, int64_t more_bytes) {
  if (arena_bytes < 0 || more_bytes < 0) {
    return absl::InvalidArgumentError("an arena of negative size");
  }
  const int64_t available = AvailableBytes();
  if (arena_bytes > available - more_bytes) {
    return NoMemory(arena_bytes, absl::StrCat(available, " bytes are available"));
  }
  const int64_t bytes = PageCeil(arena_bytes) + PageCeil(more_bytes);
  FileDescriptor pages(::memfd_create("sherd-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!pages.valid() || ::ftruncate(pages.get(), bytes) != 0 ||
      (bytes > 0 && !TakePages(pages.get(), bytes)) ||
      ::fcntl(pages.get(), F_ADD_SEALS, kSeals) != 0) {
    return NoMemory(arena_bytes, std::strerror(errno));
  }
  return pages;
}

PageMapping::~PageMapping() {
  if (begin_ != nullptr) ::munmap(begin_, static_cast<size_t>(bytes_));
}

void PageMapping::swap(PageMapping& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
}

absl::StatusOr<PageMapping> PageMapping::Map(const FileDescriptor& pages, int64_t offset,
                                             int64_t bytes, int protection) {
  PageMapping mapping;
  if (bytes == 0) return mapping;
  void* memory = ::mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED, pages.get(),
                        static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return NoMemory(bytes, std::strerror(errno));
  mapping.begin_ = static_cast<std::byte*>(memory);
  mapping.bytes_ = bytes;
  return mapping;
}

}  // namespace sherd
