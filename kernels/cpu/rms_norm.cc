#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tiling.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// One row (C).
void RmsRow(const float* x, const float* w, float eps, float* y, float* rstd, int64_t channels) {
  const float squares = SumVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV value = access.Get(x + i);
    return hn::Mul(value, value);
  });
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(channels) + eps);
  const FloatV scale_v = hn::Set(FloatTag(), scale);
  ForVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Mul(hn::Mul(access.Get(x + i), scale_v), access.Get(w + i)), y + i);
  });
  *rstd = scale;
}

// One row: dx, and dw_sum += dy · x̂ with x̂ = x · rstd.
// dx = rstd · (g − x̂ · mean(g · x̂)) with g = dy · w.
void RmsGradientRow(const float* dy, const float* x, const float* w, float rstd, float* dx,
                    bool accumulate, float* dw_sum, int64_t channels) {
  const FloatTag d;
  const FloatV rstd_v = hn::Set(d, rstd);
  const float product = SumVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV weighted = hn::Mul(access.Get(dy + i), access.Get(w + i));
    return hn::Mul(weighted, hn::Mul(access.Get(x + i), rstd_v));
  });
  const FloatV mean = hn::Set(d, product / static_cast<float>(channels));
  ForVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV x_hat = hn::Mul(access.Get(x + i), rstd_v);
    const FloatV up = access.Get(dy + i);
    const FloatV weighted = hn::Mul(up, access.Get(w + i));
    const FloatV gradient = hn::Mul(rstd_v, hn::NegMulAdd(x_hat, mean, weighted));
    access.Put(accumulate ? hn::Add(access.Get(dx + i), gradient) : gradient, dx + i);
    access.Put(hn::MulAdd(up, x_hat, access.Get(dw_sum + i)), dw_sum + i);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(RmsRow);
HWY_EXPORT(RmsGradientRow);

constexpr int64_t kForwardRows = 16;
// A tile's partial sums of dw are added up in tile order.
constexpr int64_t kBackwardRows = 32;
constexpr int64_t kColumns = 256;

}  // namespace

void CpuOps::RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd,
                            int64_t rows, int64_t channels) {
  ReserveOnEachThread(&ThreadScratch::values, channels);
  pool_.ParallelFor(CeilDiv(rows, kForwardRows), [&](int64_t index, int thread) {
    const float* w_floats = Widened(w, channels, scratch_[thread].values.Floats(channels));
    const int64_t end = std::min(rows, (index + 1) * kForwardRows);
    for (int64_t row = index * kForwardRows; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(RmsRow)
      (x + row * channels, w_floats, static_cast<float>(eps), y + row * channels, rstd + row,
       channels);
    }
  });
}

void CpuOps::RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd,
                             float* dx, bool accumulate, GradOut dw, int64_t rows,
                             int64_t channels) {
  const int64_t tiles = CeilDiv(rows, kBackwardRows);
  ReserveOnEachThread(&ThreadScratch::values, channels);
  float* partial = Shared(tiles * channels);  // (tiles, C)
  pool_.ParallelFor(tiles, [&](int64_t index, int thread) {
    const float* w_floats = Widened(w, channels, scratch_[thread].values.Floats(channels));
    float* dw_sum = partial + index * channels;
    std::fill(dw_sum, dw_sum + channels, 0.0f);
    const int64_t end = std::min(rows, (index + 1) * kBackwardRows);
    for (int64_t row = index * kBackwardRows; row < end; ++row) {
      const int64_t at = row * channels;
      HWY_DYNAMIC_DISPATCH(RmsGradientRow)
      (dy + at, x + at, w_floats, rstd[row], dx + at, accumulate, dw_sum, channels);
    }
  });
  const Cut column_cut(channels, kColumns, 16);
  pool_.ParallelFor(column_cut.pieces(), [&](int64_t index, int thread) {
    const Span1D c = column_cut[index];
    float* sums = scratch_[thread].values.Floats(c.size());
    SumColumns(partial + c.begin, channels, tiles, c.size(), sums);
    WriteGrad(dw, c.begin, sums, c.size());
  });
}

}  // namespace sherd
#endif
