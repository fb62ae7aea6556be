#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tiling.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// One row (C); two passes, so that a large mean costs the variance nothing.
void NormRow(const float* x, const float* w, const float* b, float* y, float* mean, float* rstd,
             int64_t channels) {
  constexpr float kEps = 1e-5f;
  const FloatTag d;
  const float count = static_cast<float>(channels);
  const float center =
      SumVectors(channels, [=](auto access, int64_t i) HWY_ATTR { return access.Get(x + i); }) /
      count;
  const FloatV center_v = hn::Set(d, center);
  const float variance = SumVectors(channels,
                                    [=](auto access, int64_t i) HWY_ATTR {
                                      const FloatV off = hn::Sub(access.Get(x + i), center_v);
                                      return hn::Mul(off, off);
                                    }) /
                         count;
  const float scale = 1.0f / std::sqrt(variance + kEps);
  const FloatV scale_v = hn::Set(d, scale);
  ForVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV normed = hn::Mul(hn::Sub(access.Get(x + i), center_v), scale_v);
    access.Put(hn::MulAdd(normed, access.Get(w + i), access.Get(b + i)), y + i);
  });
  *mean = center;
  *rstd = scale;
}

// One row: dx, and dw_sum += dy · x̂, db_sum += dy.
// dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)) with g = dy · w.
void NormGradientRow(const float* dy, const float* x, const float* w, float mean, float rstd,
                     float* dx, bool accumulate, float* dw_sum, float* db_sum, int64_t channels) {
  const FloatTag d;
  const FloatV mean_v = hn::Set(d, mean);
  const FloatV rstd_v = hn::Set(d, rstd);
  const auto normed = [=](auto access, int64_t i)
                          HWY_ATTR { return hn::Mul(hn::Sub(access.Get(x + i), mean_v), rstd_v); };
  const auto weighted = [=](auto access, int64_t i)
                            HWY_ATTR { return hn::Mul(access.Get(dy + i), access.Get(w + i)); };
  const float count = static_cast<float>(channels);
  const FloatV g_mean = hn::Set(d, SumVectors(channels, weighted) / count);
  const float product = SumVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    return hn::Mul(weighted(access, i), normed(access, i));
  });
  const FloatV product_mean = hn::Set(d, product / count);
  ForVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV x_hat = normed(access, i);
    const FloatV centered = hn::Sub(weighted(access, i), g_mean);
    const FloatV gradient = hn::Mul(rstd_v, hn::NegMulAdd(x_hat, product_mean, centered));
    access.Put(accumulate ? hn::Add(access.Get(dx + i), gradient) : gradient, dx + i);
    const FloatV up = access.Get(dy + i);
    access.Put(hn::MulAdd(up, x_hat, access.Get(dw_sum + i)), dw_sum + i);
    access.Put(hn::Add(access.Get(db_sum + i), up), db_sum + i);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(NormRow);
HWY_EXPORT(NormGradientRow);

constexpr int64_t kForwardRows = 16;
// A tile's partial sums of dw and db are added up in tile order.
constexpr int64_t kBackwardRows = 32;
constexpr int64_t kColumns = 256;

}  // namespace

void CpuOps::LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y, float* mean,
                              float* rstd, int64_t rows, int64_t channels) {
  ReserveOnEachThread(&ThreadScratch::values, 2 * channels);
  pool_.ParallelFor(CeilDiv(rows, kForwardRows), [&](int64_t index, int thread) {
    float* widened = scratch_[thread].values.Floats(2 * channels);
    const float* w_floats = Widened(w, channels, widened);
    const float* b_floats = Widened(b, channels, widened + channels);
    const int64_t end = std::min(rows, (index + 1) * kForwardRows);
    for (int64_t row = index * kForwardRows; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(NormRow)
      (x + row * channels, w_floats, b_floats, y + row * channels, mean + row, rstd + row,
       channels);
    }
  });
}

void CpuOps::LayerNormBackward(const float* dy, const float* x, ConstParam w, const float* mean,
                               const float* rstd, float* dx, bool accumulate, GradOut dw,
                               GradOut db, int64_t rows, int64_t channels) {
  const int64_t tiles = CeilDiv(rows, kBackwardRows);
  // (tiles, 2, C): sums for dw and for db
  float* partial = Shared(tiles * 2 * channels);
  ReserveOnEachThread(&ThreadScratch::values, channels);
  pool_.ParallelFor(tiles, [&](int64_t index, int thread) {
    const float* w_floats = Widened(w, channels, scratch_[thread].values.Floats(channels));
    float* dw_sum = partial + index * 2 * channels;
    float* db_sum = dw_sum + channels;
    std::fill(dw_sum, dw_sum + 2 * channels, 0.0f);
    const int64_t end = std::min(rows, (index + 1) * kBackwardRows);
    for (int64_t row = index * kBackwardRows; row < end; ++row) {
      const int64_t at = row * channels;
      HWY_DYNAMIC_DISPATCH(NormGradientRow)
      (dy + at, x + at, w_floats, mean[row], rstd[row], dx + at, accumulate, dw_sum, db_sum,
       channels);
    }
  });
  const Cut column_cut(channels, kColumns, 16);
  pool_.ParallelFor(2 * column_cut.pieces(), [&](int64_t index, int thread) {
    const bool bias = index >= column_cut.pieces();
    const Span1D c = column_cut[index % column_cut.pieces()];
    float* sums = scratch_[thread].values.Floats(c.size());
    SumColumns(partial + (bias ? channels : 0) + c.begin, 2 * channels, tiles, c.size(), sums);
    WriteGrad(bias ? db : dw, c.begin, sums, c.size());
  });
}

}  // namespace sherd
#endif
