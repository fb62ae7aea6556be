#pragma once

#include <cstdint>

namespace sherd {

// c (m, n) = op(a) (m, k) · op(b) (k, n), row-major with the given strides, in one call of oneDNN's
// SGEMM with `threads` threads of its own. Not for results: the limit that ours is held against.
void Sgemm(int threads, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
           const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c,
           int64_t c_stride);

}  // namespace sherd
