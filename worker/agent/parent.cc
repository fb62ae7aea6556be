#include "worker/agent/parent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace sherd {

void ExitWithParent(pid_t expected_parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const pid_t parent = getppid();
  // Async-signal-safe: also called between fork and exec.
  if (expected_parent != 0 ? parent != expected_parent : parent == 1) _exit(1);
}

}  // namespace sherd
