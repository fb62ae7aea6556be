#include "tests/simt/software_product.h"

#include <vector>

#include "kernels/cpu/fold.h"
#include "kernels/cpu/gemm.h"

namespace sherd::simt {
namespace {

std::vector<float> Widened(const void* data, DType dtype, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  CastSerial(data, dtype, values.data(), DType::kF32, elements);
  return values;
}

}  // namespace

void MultiplyOnHost(const Product& p) {
  const std::vector<float> a = Widened(p.a, p.operands, p.m * p.k);
  const std::vector<float> b = Widened(p.b, p.operands, p.k * p.n);
  std::vector<float> d(static_cast<size_t>(p.m * p.n));
  if (p.accumulate) d = Widened(p.d, p.result, p.m * p.n);
  const Matrix first{a.data(), p.a_transposed ? p.m : p.k,
                     p.a_transposed ? Transpose::kYes : Transpose::kNo};
  const Matrix second{b.data(), p.b_transposed ? p.k : p.n,
                      p.b_transposed ? Transpose::kYes : Transpose::kNo};
  Gemm(p.m, p.n, p.k, first, second, p.accumulate, d.data(), p.n);
  if (p.bias != nullptr) {
    for (int64_t i = 0; i < p.m * p.n; ++i) d[static_cast<size_t>(i)] += p.bias[i % p.n];
  }
  CastSerial(d.data(), DType::kF32, p.d, p.result, p.m * p.n);
}

}  // namespace sherd::simt
