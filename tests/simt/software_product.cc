#include "tests/simt/software_product.h"

#include <cmath>
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

// By formulas of its own: like the library's, its GELU has other last bits than the kernels'.
constexpr double kCubic = 0.044715;
const double kScale = std::sqrt(2 / M_PI);
double Gelu(double x) { return 0.5 * x * (1 + std::tanh(kScale * (x + kCubic * x * x * x))); }
double GeluSlope(double x) {
  const double t = std::tanh(kScale * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kScale * (1 + 3 * kCubic * x * x);
}

void ApplyEpilogue(const Product& p, std::vector<float>& d) {
  for (size_t i = 0; i < d.size(); ++i) {
    switch (p.epilogue) {
      case Epilogue::kNone:
        return;
      case Epilogue::kGelu:
        p.pre[i] = d[i];
        d[i] = static_cast<float>(Gelu(d[i]));
        break;
      case Epilogue::kGeluGradient:
        d[i] = static_cast<float>(d[i] * GeluSlope(p.pre[i]));
        break;
    }
  }
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
  ApplyEpilogue(p, d);
  CastSerial(d.data(), DType::kF32, p.d, p.result, p.m * p.n);
}

}  // namespace sherd::simt
