#pragma once

#include <sys/types.h>

namespace sherd {

// The kernel kills this process when the thread that started it ends, so that nothing lingers after
// a parent that could not say goodbye (F36). Ends the process at once when that has happened
// already: its parent is then no longer `expected_parent`, which the caller has asked for early on.
// Process 1 is a parent like others: in a container it may be a shell or a supervisor.
void ExitWithParent(pid_t expected_parent);

}  // namespace sherd
