#include "worker/comm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace sherd {

// Without FUTEX_PRIVATE_FLAG: the waiters are other processes.

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration patience) {
  const timespec timeout = absl::ToTimespec(patience);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sherd
