#pragma once

#include <cstdint>

namespace sherd {

// Where a member is in the sequence of operations, as one word that only grows. Operations count
// from 1.
enum class Phase : uint32_t {
  kArrived = 0,  // descriptor and input are in place
  kDone = 1,     // reads nothing more of others
};

constexpr uint32_t ProgressWord(uint64_t sequence, Phase phase) {
  return static_cast<uint32_t>(sequence << 1) | static_cast<uint32_t>(phase);
}

// The word wraps after 2^31 operations; members are never that far apart.
constexpr bool HasReached(uint32_t progress, uint32_t wanted) {
  return static_cast<int32_t>(progress - wanted) >= 0;
}

}  // namespace sherd
