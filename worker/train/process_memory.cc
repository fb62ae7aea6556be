#include "worker/train/process_memory.h"

#include <malloc.h>

#include <fstream>
#include <string>

namespace sherd {

absl::StatusOr<int64_t> AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    constexpr char kKey[] = "RssAnon:";
    if (line.rfind(kKey, 0) != 0) continue;
    return std::strtoll(line.c_str() + sizeof(kKey) - 1, nullptr, 10) * 1024;
  }
  return absl::UnavailableError("/proc/self/status names no RssAnon");
}

void MapLargeHeapBlocks() { mallopt(M_MMAP_THRESHOLD, 1 << 20); }

void ReturnFreeHeap() {
#ifndef __SANITIZE_ADDRESS__
  // The sanitizer has a heap of its own. The C library's is then never used, and its first use, by
  // several threads at once, crashes.
  malloc_trim(0);
#endif
}

}  // namespace sherd
