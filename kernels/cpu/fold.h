#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace sherd {

// Element-wise work on the calling thread: without state, for any number of threads at once. Each
// element has the same bits as from the Ops method of that name, however a range is cut.

// dst = round(dst + src): the sum in fp32, rounded to `dtype`. `dst` and `src` may not overlap
// unless they are equal.
void AddRoundedSerial(void* dst, const void* src, DType dtype, int64_t elements);
void CastSerial(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t elements);

}  // namespace sherd
