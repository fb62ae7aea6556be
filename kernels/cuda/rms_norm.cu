// RMSNorm over rows, one block a row, or a tile of rows where gradients of weights are summed.

#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

template <typename T>
__global__ void __launch_bounds__(kMostNormThreads)
    RmsNormForwardKernel(const float* x, const T* w, float eps, float* y, float* rstd,
                         int64_t channels, bool whole) {
  const int64_t row = blockIdx.x;
  const float* const from = x + row * channels;
  float squares = 0;
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    Pack<kNormWidth> pack = LoadPack<kNormWidth>(from + c, channels - c, whole);
#pragma unroll
    for (int i = 0; i < kNormWidth; ++i) pack.v[i] = pack.v[i] * pack.v[i];
    squares = squares + SumOfPack(pack);
  }
  const float scale = 1.0f / sqrtf(SumOfBlock(squares) / static_cast<float>(channels) + eps);
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    const int64_t left = channels - c;
    Pack<kNormWidth> pack = LoadPack<kNormWidth>(from + c, left, whole);
    const Pack<kNormWidth> weight = LoadPack<kNormWidth>(w + c, left, whole);
#pragma unroll
    for (int i = 0; i < kNormWidth; ++i) pack.v[i] = pack.v[i] * scale * weight.v[i];
    StorePack(pack, y + row * channels + c, left, whole);
  }
  if (threadIdx.x == 0) rstd[row] = scale;
}

// dx = rstd · (g − x̂ · mean(g · x̂)) with g = dy · w and x̂ = x · rstd, for a tile of rows, and the
// tile's sums of dy · x̂: partial (tiles, C padded to whole packs). A thread has the same columns of
// every row, so its sums, in shared memory where they fit, are its own.
template <typename T, bool kInShared>
__global__ void __launch_bounds__(kMostNormThreads)
    RmsNormBackwardKernel(const float* dy, const float* x, const T* w, const float* rstd, float* dx,
                          float* partial, int64_t rows, int64_t channels, bool whole,
                          bool accumulate) {
  SIMT_DYNAMIC_SHARED(float, room);
  float* const to = partial + int64_t{blockIdx.x} * PaddedColumns(channels);
  float* const sums = kInShared ? room : to;
  for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
    StoreWhole(Pack<kNormWidth>{}, sums + c);
  }
  const int64_t first = int64_t{blockIdx.x} * kNormRows;
  for (int64_t row = first; row < min(rows, first + kNormRows); ++row) {
    const int64_t at = row * channels;
    const float scale = rstd[row];
    float product_sum = 0;
    for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
      const int64_t left = channels - c;
      const Pack<kNormWidth> up = LoadPack<kNormWidth>(dy + at + c, left, whole);
      Pack<kNormWidth> product = LoadPack<kNormWidth>(x + at + c, left, whole);
      const Pack<kNormWidth> weight = LoadPack<kNormWidth>(w + c, left, whole);
#pragma unroll
      for (int i = 0; i < kNormWidth; ++i) {
        product.v[i] = up.v[i] * weight.v[i] * (product.v[i] * scale);
      }
      product_sum = product_sum + SumOfPack(product);
    }
    const float product_mean = SumOfBlock(product_sum) / static_cast<float>(channels);
    for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
      const int64_t left = channels - c;
      const Pack<kNormWidth> up = LoadPack<kNormWidth>(dy + at + c, left, whole);
      Pack<kNormWidth> pack = LoadPack<kNormWidth>(x + at + c, left, whole);
      const Pack<kNormWidth> weight = LoadPack<kNormWidth>(w + c, left, whole);
      Pack<kNormWidth> dw;
      LoadWhole(sums + c, dw);
#pragma unroll
      for (int i = 0; i < kNormWidth; ++i) {
        const float x_hat = pack.v[i] * scale;
        pack.v[i] = scale * fmaf(-x_hat, product_mean, up.v[i] * weight.v[i]);
        dw.v[i] = fmaf(up.v[i], x_hat, dw.v[i]);
      }
      StoreWhole(dw, sums + c);
      WriteGradient(pack, dx + at + c, left, whole, accumulate);
    }
  }
  if constexpr (kInShared) {
    for (int64_t c = FirstColumn(); c < channels; c += ColumnStride()) {
      Pack<kNormWidth> dw;
      LoadWhole(sums + c, dw);
      StoreWhole(dw, to + c);
    }
  }
}

}  // namespace

void CudaKernels::RmsNormForward(const float* x, ConstParam w, double eps, float* y, float* rstd,
                                 int64_t rows, int64_t channels) {
  const bool whole = channels % kNormWidth == 0 && AllAligned(x, w.data, y);
  ForType(w.dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(RmsNormForwardKernel<T>), rows, NormThreads(channels), 0, x,
        static_cast<const T*>(w.data), static_cast<float>(eps), y, rstd, channels, whole);
  });
}

void CudaKernels::RmsNormBackward(const float* dy, const float* x, ConstParam w, const float* rstd,
                                  float* dx, bool accumulate, GradOut dw, int64_t rows,
                                  int64_t channels) {
  const bool whole = channels % kNormWidth == 0 && AllAligned(dy, x, w.data, dx);
  const int64_t tiles = CeilDiv(rows, kNormRows);
  const int64_t padded = PaddedColumns(channels);
  const int64_t partial_floats = tiles * padded;
  float* const partial = Scratch<float>(partial_floats + RoomOfSums(tiles, channels));
  const size_t sum_bytes = static_cast<size_t>(padded) * sizeof(float);
  ForType(w.dtype, [&](auto type) {
    using T = decltype(type);
    const auto run = [&](const auto& kernel, size_t shared) {
      Run(kernel, tiles, NormThreads(channels), shared, dy, x, static_cast<const T*>(w.data), rstd,
          dx, partial, rows, channels, whole, accumulate);
    };
    if (sum_bytes <= kMostSumBytes) {
      run(SIMT_KERNEL(RmsNormBackwardKernel<T, true>), sum_bytes);
    } else {
      run(SIMT_KERNEL(RmsNormBackwardKernel<T, false>), 0);
    }
  });
  SumColumns(partial, padded, tiles, channels, dw, partial + partial_floats);
}

}  // namespace sherd
