#include "worker/agent/identity.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"

namespace sherd {

std::string HostName() {
  utsname names{};
  if (uname(&names) != 0 || names.nodename[0] == '\0') return "localhost";
  return names.nodename;
}

std::string NumericsFingerprint() {
  std::string sets;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) absl::StrAppend(&sets, ",avx2");
  if (__builtin_cpu_supports("fma")) absl::StrAppend(&sets, ",fma");
  if (__builtin_cpu_supports("avx512f")) absl::StrAppend(&sets, ",avx512f");
  if (__builtin_cpu_supports("avx512vnni")) absl::StrAppend(&sets, ",avx512vnni");
#endif
  return absl::StrCat("sherd ", SHERD_VERSION, ", compiler ", __VERSION__, ", cpu", sets);
}

int64_t HostMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

int HostCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

uint64_t DrawIncarnation() {
  std::random_device source;
  uint64_t drawn = 0;
  while (drawn == 0) drawn = (static_cast<uint64_t>(source()) << 32) | source();
  return drawn;
}

}  // namespace sherd
