#include "worker/agent/parent.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace sherd {

void ExitWithParent(pid_t expected_parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Async-signal-safe: also called between fork and exec.
  if (getppid() != expected_parent) _exit(1);
}

}  // namespace sherd
