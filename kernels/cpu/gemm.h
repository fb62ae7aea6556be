#pragma once

#include <cstdint>

namespace sherd {

enum class Transpose : char { kNo = 'N', kYes = 'T' };

// A row-major operand with `stride` floats between rows.
struct Matrix {
  const float* data;
  int64_t stride;
  Transpose transpose = Transpose::kNo;
};

// c (m, n; c_stride) = op(a) (m, k) · op(b) (k, n), added to c when `accumulate`. On the calling
// thread alone; any number of threads may call at once. k = 0 gives zeros.
void Gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, bool accumulate,
          float* c, int64_t c_stride);

}  // namespace sherd
