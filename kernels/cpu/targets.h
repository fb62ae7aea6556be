#pragma once

// Instruction sets that the element-wise kernels are compiled for: AVX-512 and AVX2, and portable
// code that runs anywhere. Include before hwy/foreach_target.h.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
