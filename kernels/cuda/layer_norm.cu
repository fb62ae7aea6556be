// LayerNorm over rows, one block a row, or a tile of rows where gradients of weights are summed.

#include <cmath>

#include "common/check.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

// Two passes over the row, so that a large mean costs the variance nothing.
template <typename T>
__global__ void __launch_bounds__(kMostNormThreads)
    LayerNormForwardKernel(const float* x, const T* w, const T* b, float* y, float* mean,
                           float* rstd, int64_t channels, bool whole) {
  constexpr float kEps = 1e-5f;
  const int64_t row = blockIdx.x;
  const float* const from = x + row * channels;
  const float count = static_cast<float>(channels);
  float sum = 0;
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    const Pack<kNormWidth> pack = LoadPack<kNormWidth>(from + c, channels - c, whole);
    sum = sum + SumOfPack(pack);
  }
  const float center = SumOfBlock(sum) / count;
  float squares = 0;
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    const int64_t left = channels - c;
    Pack<kNormWidth> pack = LoadPack<kNormWidth>(from + c, left, whole);
#pragma unroll
    for (int i = 0; i < kNormWidth; ++i) {
      const float off = pack.v[i] - center;
      pack.v[i] = i < left ? off * off : 0.0f;
    }
    squares = squares + SumOfPack(pack);
  }
  const float scale = 1.0f / sqrtf(SumOfBlock(squares) / count + kEps);
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    const int64_t left = channels - c;
    Pack<kNormWidth> pack = LoadPack<kNormWidth>(from + c, left, whole);
    const Pack<kNormWidth> weight = LoadPack<kNormWidth>(w + c, left, whole);
    const Pack<kNormWidth> bias = LoadPack<kNormWidth>(b + c, left, whole);
#pragma unroll
    for (int i = 0; i < kNormWidth; ++i) {
      pack.v[i] = fmaf((pack.v[i] - center) * scale, weight.v[i], bias.v[i]);
    }
    StorePack(pack, y + row * channels + c, left, whole);
  }
  if (threadIdx.x == 0) {
    mean[row] = center;
    rstd[row] = scale;
  }
}

// dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)) with g = dy · w, for a tile of rows, and the tile's
// sums of dy · x̂ and of dy: partial (tiles, 2, C padded to whole packs). A thread has the same
// columns of every row, so its sums, in shared memory where they fit, are its own.
template <typename T, bool kInShared>
__global__ void __launch_bounds__(kMostNormThreads)
    LayerNormBackwardKernel(const float* dy, const float* x, const T* w, const float* mean,
                            const float* rstd, float* dx, float* partial, int64_t rows,
                            int64_t channels, bool whole, bool accumulate) {
  SIMT_DYNAMIC_SHARED(float, room);
  const int64_t padded = PaddedColumns(channels);
  float* const to = partial + int64_t{blockIdx.x} * 2 * padded;
  float* const sums = kInShared ? room : to;
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    StoreWhole(Pack<kNormWidth>{}, sums + c);
    StoreWhole(Pack<kNormWidth>{}, sums + padded + c);
  }
  const float count = static_cast<float>(channels);
  const int64_t first = int64_t{blockIdx.x} * kNormRows;
  for (int64_t row = first; row < min(rows, first + kNormRows); ++row) {
    const int64_t at = row * channels;
    const float center = mean[row], scale = rstd[row];
    float g_sum = 0, product_sum = 0;
    for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
      const int64_t left = channels - c;
      Pack<kNormWidth> g = LoadPack<kNormWidth>(dy + at + c, left, whole);
      Pack<kNormWidth> product = LoadPack<kNormWidth>(x + at + c, left, whole);
      const Pack<kNormWidth> weight = LoadPack<kNormWidth>(w + c, left, whole);
#pragma unroll
      for (int i = 0; i < kNormWidth; ++i) {
        g.v[i] = g.v[i] * weight.v[i];
        product.v[i] = g.v[i] * ((product.v[i] - center) * scale);
      }
      g_sum = g_sum + SumOfPack(g);
      product_sum = product_sum + SumOfPack(product);
    }
    SumOfBlock(g_sum, product_sum);
    const float g_mean = g_sum / count, product_mean = product_sum / count;
    for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
      const int64_t left = channels - c;
      const Pack<kNormWidth> up = LoadPack<kNormWidth>(dy + at + c, left, whole);
      Pack<kNormWidth> pack = LoadPack<kNormWidth>(x + at + c, left, whole);
      const Pack<kNormWidth> weight = LoadPack<kNormWidth>(w + c, left, whole);
      Pack<kNormWidth> dw, db;
      LoadWhole(sums + c, dw);
      LoadWhole(sums + padded + c, db);
#pragma unroll
      for (int i = 0; i < kNormWidth; ++i) {
        const float x_hat = (pack.v[i] - center) * scale;
        const float centered = up.v[i] * weight.v[i] - g_mean;
        pack.v[i] = scale * fmaf(-x_hat, product_mean, centered);
        dw.v[i] = fmaf(up.v[i], x_hat, dw.v[i]);
        db.v[i] = db.v[i] + up.v[i];
      }
      StoreWhole(dw, sums + c);
      StoreWhole(db, sums + padded + c);
      WriteGradient(pack, dx + at + c, left, whole, accumulate);
    }
  }
  if constexpr (kInShared) {
    for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
      Pack<kNormWidth> dw, db;
      LoadWhole(sums + c, dw);
      LoadWhole(sums + padded + c, db);
      StoreWhole(dw, to + c);
      StoreWhole(db, to + padded + c);
    }
  }
}

}  // namespace

void CudaKernels::LayerNormForward(const float* x, ConstParam w, ConstParam b, float* y,
                                   float* mean, float* rstd, int64_t rows, int64_t channels) {
  SHERD_CHECK(w.dtype == b.dtype);
  const bool whole = channels % kNormWidth == 0 && AllAligned(x, w.data, b.data, y);
  ForType(w.dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(LayerNormForwardKernel<T>), rows, NormThreads(channels), 0, x,
        static_cast<const T*>(w.data), static_cast<const T*>(b.data), y, mean, rstd, channels,
        whole);
  });
}

void CudaKernels::LayerNormBackward(const float* dy, const float* x, ConstParam w,
                                    const float* mean, const float* rstd, float* dx,
                                    bool accumulate, GradOut dw, GradOut db, int64_t rows,
                                    int64_t channels) {
  const bool whole = channels % kNormWidth == 0 && AllAligned(dy, x, w.data, dx);
  const int64_t tiles = CeilDiv(rows, kNormRows);
  const int64_t padded = PaddedColumns(channels);
  const int64_t partial_floats = tiles * 2 * padded;
  float* const partial = Scratch<float>(partial_floats + RoomOfSums(tiles, channels));
  const size_t sum_bytes = static_cast<size_t>(2 * padded) * sizeof(float);
  ForType(w.dtype, [&](auto type) {
    using T = decltype(type);
    const auto run = [&](const auto& kernel, size_t shared) {
      Run(kernel, tiles, NormThreads(channels), shared, dy, x, static_cast<const T*>(w.data), mean,
          rstd, dx, partial, rows, channels, whole, accumulate);
    };
    if (sum_bytes <= kMostSumBytes) {
      run(SIMT_KERNEL(LayerNormBackwardKernel<T, true>), sum_bytes);
    } else {
      run(SIMT_KERNEL(LayerNormBackwardKernel<T, false>), 0);
    }
  });
  SumColumns(partial, 2 * padded, tiles, channels, dw, partial + partial_floats);
  SumColumns(partial + padded, 2 * padded, tiles, channels, db, partial + partial_floats);
}

}  // namespace sherd
