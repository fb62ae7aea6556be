#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace sherd {

// Sleeps while `word`, which may be shared between processes, is `expected`; at most `patience`,
// and may wake early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration patience);
// Wakes all that sleep on `word`, in every process.
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace sherd
