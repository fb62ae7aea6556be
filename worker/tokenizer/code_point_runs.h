#pragma once

#include <array>
#include <cstdint>

namespace sherd {

// Runs of code points of equal classes, in order: the first one's number times 16, and the bits of
// code_points.h.
extern const std::array<uint32_t, 2012> kCodePointRuns;

}  // namespace sherd
