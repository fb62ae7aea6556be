#include "bench/sgemm_limit.h"

#include "common/check.h"
#include "oneapi/dnnl/dnnl.h"

// As in kernels/cpu/gemm.cc.
extern "C" void omp_set_num_threads(int threads);

namespace sherd {

void Sgemm(int threads, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
           const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c,
           int64_t c_stride) {
  omp_set_num_threads(threads);
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                                          1.0f, a, a_stride, b, b_stride, 0.0f, c, c_stride);
  SHERD_CHECK(status == dnnl_success);
}

}  // namespace sherd
