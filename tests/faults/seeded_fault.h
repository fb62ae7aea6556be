#pragma once

#include <cstdlib>

namespace sherd {

// Whether the process runs with deliberate fault `number` (tests/faults/faults.toml), which the
// environment variable SHERD_FAULT names. Only sources that scripts/check_faults.py has seeded with
// faults ask.
inline bool SeededFault(int number) {
  static const int chosen = [] {
    const char* const name = std::getenv("SHERD_FAULT");
    return name == nullptr ? 0 : std::atoi(name);
  }();
  return number == chosen;
}

}  // namespace sherd
