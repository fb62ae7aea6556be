#include "kernels/cpu/gemm.h"

#include <cstring>

#include "common/check.h"
#include "oneapi/dnnl/dnnl.h"

// Declared here because clang has no omp.h without its own OpenMP runtime, and oneDNN's is GNU's.
extern "C" void omp_set_num_threads(int threads);

namespace sherd {

void Gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, bool accumulate,
          float* c, int64_t c_stride) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (accumulate) return;
    for (int64_t row = 0; row < m; ++row) {
      std::memset(c + row * c_stride, 0, static_cast<size_t>(n) * sizeof(float));
    }
    return;
  }
  // oneDNN would otherwise start an OpenMP team beside our pool. The setting is the calling
  // thread's own and cheap to repeat.
  omp_set_num_threads(1);
  const dnnl_status_t status =
      dnnl_sgemm(static_cast<char>(a.transpose), static_cast<char>(b.transpose), m, n, k, 1.0f,
                 a.data, a.stride, b.data, b.stride, accumulate ? 1.0f : 0.0f, c, c_stride);
  SHERD_CHECK(status == dnnl_success);
}

}  // namespace sherd
