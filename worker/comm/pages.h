#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {

inline constexpr int64_t kPageBytes = 4096;
constexpr int64_t PageCeil(int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// What can be had of this machine's memory without swapping, by the kernel's estimate.
int64_t AvailableBytes();

// Keeps threads that take memory at the same time from counting the same free bytes. Thread-safe.
class PageBudget {
 public:
  // `available` is called under a lock.
  explicit PageBudget(std::function<int64_t()> available = AvailableBytes)
      : available_(std::move(available)) {}

  // Sets so many bytes apart until they are taken. kResourceExhausted, and none are, unless they
  // are available beside what others have set apart.
  absl::Status Reserve(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of what was reserved, so many are in use by now, or not wanted any more.
  void Taken(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  const std::function<int64_t()> available_;
  int64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Zeroed memory for an arena and `more_bytes` beside it, each in whole pages, out of `budget`. It
// has no name, cannot shrink or grow, and all of it is taken now: running out of it later would be
// a SIGBUS in the middle of a step. kResourceExhausted, naming the arena's size, when memory does
// not suffice; kInvalidArgument for a negative size.
absl::StatusOr<FileDescriptor> NewPages(int64_t arena_bytes, int64_t more_bytes,
                                        PageBudget& budget);
// For who takes memory alone.
absl::StatusOr<FileDescriptor> NewPages(int64_t arena_bytes, int64_t more_bytes);

// A mapping of such memory, or of a part of it.
class PageMapping {
 public:
  PageMapping() = default;
  ~PageMapping();
  PageMapping(PageMapping&& other) noexcept { swap(other); }
  PageMapping& operator=(PageMapping&& other) noexcept {
    swap(other);
    return *this;
  }
  // `protection` as for mmap. kResourceExhausted when the address space or the kernel's tables do
  // not suffice.
  static absl::StatusOr<PageMapping> Map(const FileDescriptor& pages, int64_t offset, int64_t bytes,
                                         int protection);

  // Null of no bytes.
  std::byte* begin() const { return begin_; }

 private:
  void swap(PageMapping& other) noexcept;

  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace sherd
