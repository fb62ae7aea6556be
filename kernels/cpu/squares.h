#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace sherd {

// sum += Σ x², exactly, on the calling thread.
void AddSquaresSerial(const void* x, DType dtype, int64_t elements, ExactSum& sum);

}  // namespace sherd
