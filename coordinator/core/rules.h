#pragma once

#include <cstdint>

namespace sherd {

// The rules by which Apply makes states of durable events; every event carries those of the
// coordinator that wrote it, and only they read it. Raised with every change by which some sequence
// of events makes another state: tests/coordinator/rules_test.cc sees most of them. 0 is what
// coordinators wrote that did not number their rules yet, and is read by rules 1.
inline constexpr int32_t kRules = 7;

}  // namespace sherd
