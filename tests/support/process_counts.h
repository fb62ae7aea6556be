#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace sherd::testing {

inline int64_t CountEntries(const char* directory) {
  return std::distance(std::filesystem::directory_iterator(directory),
                       std::filesystem::directory_iterator());
}
// Of this process.
inline int64_t CountThreads() { return CountEntries("/proc/self/task"); }
inline int64_t CountDescriptors() { return CountEntries("/proc/self/fd"); }
inline int64_t ResidentBytes() {
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

}  // namespace sherd::testing
