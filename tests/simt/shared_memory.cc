#include "tests/simt/shared_memory.h"

#include <sys/mman.h>

#include <cstring>

#include "common/check.h"

#if defined(SHERD_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace sherd::simt {
namespace {

constexpr size_t kAlignment = 128;
constexpr size_t kRedZone = 128;
constexpr size_t kMostVariables = 64;

std::byte* MapOnes(size_t bytes) {
  void* const room =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SHERD_CHECK(room != MAP_FAILED);
  std::memset(room, 0xff, bytes);
  return static_cast<std::byte*>(room);
}

}  // namespace

SharedMemory::SharedMemory(size_t limit)
    : limit_(limit), room_bytes_(limit + kMostVariables * (kAlignment + kRedZone)) {
  variables_.reserve(kMostVariables);
  room_ = MapOnes(room_bytes_);
}

SharedMemory::~SharedMemory() {
#if defined(SHERD_SIMT_ASAN)
  __asan_unpoison_memory_region(room_, room_bytes_);
#endif
  munmap(room_, room_bytes_);
}

void SharedMemory::Clear() {
#if defined(SHERD_SIMT_TSAN)
  // Other memory, written by none of the block's threads: what the sanitizer knows of accesses by
  // the block before is of no interest.
  if (used_ > 0) {
    munmap(room_, room_bytes_);
    room_ = MapOnes(room_bytes_);
  }
#endif
#if defined(SHERD_SIMT_ASAN)
  __asan_poison_memory_region(room_, room_bytes_);
#endif
  used_ = allocated_ = 0;
  variables_.clear();
}

std::byte* SharedMemory::Find(const void* key, size_t bytes) {
  for (const Variable& variable : variables_) {
    if (variable.key == key) return variable.data;
  }
  if (allocated_ + bytes > limit_ || variables_.size() == kMostVariables) return nullptr;
  std::byte* const data = room_ + used_ + kRedZone;
  const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  used_ += padded + kRedZone;
  allocated_ += bytes;
#if defined(SHERD_SIMT_ASAN)
  __asan_unpoison_memory_region(data, bytes);
#endif
#if !defined(SHERD_SIMT_TSAN)
  std::memset(data, 0xff, bytes);
#endif
  variables_.push_back({key, data});
  return data;
}

}  // namespace sherd::simt
