#include "worker/comm/pages.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
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

// Taken by one call, and for so long counted twice by who looks meanwhile: as reserved and as gone.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

bool TakePiece(int descriptor, int64_t begin, int64_t bytes) {
  int result;
  do {
    result = ::fallocate(descriptor, 0, static_cast<off_t>(begin), bytes);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

// Tells `budget` of all `bytes`, also when it fails.
bool TakePages(int descriptor, int64_t bytes, PageBudget& budget) {
  int64_t taken = 0;
  bool took = true;
  while (took && taken < bytes) {
    const int64_t piece = std::min(kPieceBytes, bytes - taken);
    took = TakePiece(descriptor, taken, piece);
    if (!took) break;
    budget.Taken(piece);
    taken += piece;
  }
  const int error = errno;
  budget.Taken(bytes - taken);
  errno = error;
  return took;
}

}  // namespace

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

absl::Status PageBudget::Reserve(int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  // Read here: what another has taken since would be counted neither as gone nor as reserved.
  const int64_t available = available_();
  if (bytes > available - reserved_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        available, " bytes are available",
        reserved_ > 0 ? absl::StrCat(", of which ", reserved_, " are being taken") : ""));
  }
  reserved_ += bytes;
  return absl::OkStatus();
}

void PageBudget::Taken(int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  reserved_ -= bytes;
}

absl::StatusOr<FileDescriptor> NewPages(int64_t arena_bytes, int64_t more_bytes,
                                        PageBudget& budget) {
  if (arena_bytes < 0 || more_bytes < 0) {
    return absl::InvalidArgumentError("an arena of negative size");
  }
  // So that no sum overflows.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  const int64_t bytes =
      PageCeil(std::min(arena_bytes, kMost)) + PageCeil(std::min(more_bytes, kMost));
  // The kernel would rather kill a process than refuse shared memory, so the refusal has to be
  // ours.
  const absl::Status reserved = budget.Reserve(bytes);
  if (!reserved.ok()) return NoMemory(arena_bytes, reserved.message());
  FileDescriptor pages(::memfd_create("sherd-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!pages.valid() || ::ftruncate(pages.get(), bytes) != 0) {
    const int error = errno;
    budget.Taken(bytes);
    return NoMemory(arena_bytes, std::strerror(error));
  }
  if (!TakePages(pages.get(), bytes, budget) || ::fcntl(pages.get(), F_ADD_SEALS, kSeals) != 0) {
    return NoMemory(arena_bytes, std::strerror(errno));
  }
  return pages;
}

absl::StatusOr<FileDescriptor> NewPages(int64_t arena_bytes, int64_t more_bytes) {
  PageBudget budget;
  return NewPages(arena_bytes, more_bytes, budget);
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
