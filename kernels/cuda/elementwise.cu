// What is done to each element alone.

#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

// 16 bytes of bf16, twice 16 of fp32.
constexpr int kWidth = 8;

// GELU's 0.5 (1 + tanh u) is the logistic function of 2u: one exp and no cancellation.
constexpr float kTwiceRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

// 2u = 2 √(2/π) (x + 0.044715 x³)
__device__ __forceinline__ float TwiceU(float x, float x_squared) {
  return kTwiceRootTwoOverPi * x * fmaf(kCubic, x_squared, 1.0f);
}

// x limited to [low, high]; a NaN stays a NaN.
__device__ __forceinline__ float Limited(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

__global__ void __launch_bounds__(kElementThreads)
    GeluForwardKernel(const float* x, float* y, int64_t elements, bool whole) {
  const int64_t at = PackOfThread<kWidth>();
  const int64_t left = elements - at;
  if (left <= 0) return;
  Pack<kWidth> pack = LoadPack<kWidth>(x + at, left, whole);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float value = pack.v[i];
    pack.v[i] = value / (1.0f + expf(-TwiceU(value, value * value)));
  }
  StorePack(pack, y + at, left, whole);
}

// gelu'(x) = s + x s (1 − s) (2u)', where s = 1 / (1 + e) and 1 − s = e s with e = exp(−2u). `dx`
// may be `dy`.
__global__ void __launch_bounds__(kElementThreads)
    GeluBackwardKernel(const float* dy, const float* x, float* dx, int64_t elements, bool whole) {
  const int64_t at = PackOfThread<kWidth>();
  const int64_t left = elements - at;
  if (left <= 0) return;
  const Pack<kWidth> outer = LoadPack<kWidth>(dy + at, left, whole);
  Pack<kWidth> pack = LoadPack<kWidth>(x + at, left, whole);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    // Beyond ±10 the derivative is 0 or 1 within 1e-34, and e would overflow.
    const float value = Limited(pack.v[i], -10.0f, 10.0f);
    const float squared = value * value;
    const float falling = expf(-TwiceU(value, squared));
    const float gate = 1.0f / (1.0f + falling);
    const float slope = kTwiceRootTwoOverPi * fmaf(3 * kCubic, squared, 1.0f);
    const float bend = value * slope * (gate * (falling * gate));
    pack.v[i] = outer.v[i] * (gate + bend);
  }
  StorePack(pack, dx + at, left, whole);
}

constexpr int kRowWidth = 4;

// silu(gate) · up; the logistic function needs no care: e^−g overflows to infinity and gives −0.
__global__ void __launch_bounds__(kElementThreads)
    SwiGluForwardKernel(const float* gate_up, float* y, int64_t rows, int64_t ffn, bool whole) {
  const PackOfRow p = FindPack<kRowWidth>(ffn);
  if (p.row >= rows) return;
  const float* gate = gate_up + p.row * 2 * ffn + p.column;
  Pack<kRowWidth> pack = LoadPack<kRowWidth>(gate, p.left, whole);
  const Pack<kRowWidth> up = LoadPack<kRowWidth>(gate + ffn, p.left, whole);
#pragma unroll
  for (int i = 0; i < kRowWidth; ++i) {
    pack.v[i] = pack.v[i] / (1.0f + expf(-pack.v[i])) * up.v[i];
  }
  StorePack(pack, y + p.row * ffn + p.column, p.left, whole);
}

// silu'(g) = s + g s (1 − s), where s = 1 / (1 + e) and 1 − s = e s with e = exp(−g). `dgate_up`
// may be `gate_up`.
__global__ void __launch_bounds__(kElementThreads)
    SwiGluBackwardKernel(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                         int64_t ffn, bool whole) {
  const PackOfRow p = FindPack<kRowWidth>(ffn);
  if (p.row >= rows) return;
  const int64_t at = p.row * 2 * ffn + p.column;
  Pack<kRowWidth> gate = LoadPack<kRowWidth>(gate_up + at, p.left, whole);
  Pack<kRowWidth> up = LoadPack<kRowWidth>(gate_up + at + ffn, p.left, whole);
  const Pack<kRowWidth> outer = LoadPack<kRowWidth>(dy + p.row * ffn + p.column, p.left, whole);
#pragma unroll
  for (int i = 0; i < kRowWidth; ++i) {
    const float value = gate.v[i];
    // Beyond ±80 the derivative is 0 or 1 within 1e-32, and e · s would be infinity · 0; so is silu
    // below −80.
    const float limited = Limited(value, -80.0f, 80.0f);
    const float falling = expf(-limited);
    const float logistic = 1.0f / (1.0f + falling);
    const float bend = limited * logistic * (falling * logistic);
    gate.v[i] = outer.v[i] * up.v[i] * (logistic + bend);
    up.v[i] = outer.v[i] * ((value < limited ? limited : value) * logistic);
  }
  StorePack(gate, dgate_up + at, p.left, whole);
  StorePack(up, dgate_up + at + ffn, p.left, whole);
}

// y = (x + bias) + residual; `bias` may be null, y may be x or residual.
template <typename Bias>
__global__ void __launch_bounds__(kElementThreads)
    ResidualKernel(const float* x, const Bias* bias, const float* residual, float* y, int64_t rows,
                   int64_t channels, bool whole) {
  const PackOfRow p = FindPack<kRowWidth>(channels);
  if (p.row >= rows) return;
  const int64_t at = p.row * channels + p.column;
  Pack<kRowWidth> pack = LoadPack<kRowWidth>(x + at, p.left, whole);
  const Pack<kRowWidth> stream = LoadPack<kRowWidth>(residual + at, p.left, whole);
  if (bias != nullptr) {
    const Pack<kRowWidth> added = LoadPack<kRowWidth>(bias + p.column, p.left, whole);
#pragma unroll
    for (int i = 0; i < kRowWidth; ++i) pack.v[i] = pack.v[i] + added.v[i];
  }
#pragma unroll
  for (int i = 0; i < kRowWidth; ++i) pack.v[i] = pack.v[i] + stream.v[i];
  StorePack(pack, y + at, p.left, whole);
}

template <typename T>
__global__ void __launch_bounds__(kElementThreads)
    AddRoundedKernel(T* dst, const T* src, int64_t elements, bool whole) {
  const int64_t at = PackOfThread<kWidth>();
  const int64_t left = elements - at;
  if (left <= 0) return;
  WriteGradient(LoadPack<kWidth>(src + at, left, whole), dst + at, left, whole,
                /*accumulate=*/true);
}

template <typename From, typename To>
__global__ void __launch_bounds__(kElementThreads)
    CastKernel(const From* src, To* dst, int64_t elements, bool whole) {
  const int64_t at = PackOfThread<kWidth>();
  const int64_t left = elements - at;
  if (left <= 0) return;
  StorePack(LoadPack<kWidth>(src + at, left, whole), dst + at, left, whole);
}

int64_t BlocksOfRows(int64_t rows, int64_t channels) {
  return BlocksOfPacks(rows * CeilDiv(channels, kRowWidth), 1);
}

}  // namespace

void CudaKernels::GeluForward(const float* x, float* y, int64_t elements) {
  Run(SIMT_KERNEL(GeluForwardKernel), BlocksOfPacks(elements, kWidth), kElementThreads, 0, x, y,
      elements, AllAligned(x, y));
}

void CudaKernels::GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) {
  Run(SIMT_KERNEL(GeluBackwardKernel), BlocksOfPacks(elements, kWidth), kElementThreads, 0, dy, x,
      dx, elements, AllAligned(dy, x, dx));
}

void CudaKernels::SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) {
  Run(SIMT_KERNEL(SwiGluForwardKernel), BlocksOfRows(rows, ffn), kElementThreads, 0, gate_up, y,
      rows, ffn, ffn % kRowWidth == 0 && AllAligned(gate_up, y));
}

void CudaKernels::SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up,
                                 int64_t rows, int64_t ffn) {
  Run(SIMT_KERNEL(SwiGluBackwardKernel), BlocksOfRows(rows, ffn), kElementThreads, 0, dy, gate_up,
      dgate_up, rows, ffn, ffn % kRowWidth == 0 && AllAligned(dy, gate_up, dgate_up));
}

void CudaKernels::ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                                  int64_t rows, int64_t channels) {
  const bool whole = channels % kRowWidth == 0 && AllAligned(x, bias.data, residual, y);
  ForType(bias.dtype, [&](auto type) {
    using Bias = decltype(type);
    Run(SIMT_KERNEL(ResidualKernel<Bias>), BlocksOfRows(rows, channels), kElementThreads, 0, x,
        static_cast<const Bias*>(bias.data), residual, y, rows, channels, whole);
  });
}

void CudaKernels::AddRounded(void* dst, const void* src, DType dtype, int64_t elements) {
  ForType(dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(AddRoundedKernel<T>), BlocksOfPacks(elements, kWidth), kElementThreads, 0,
        static_cast<T*>(dst), static_cast<const T*>(src), elements, AllAligned(dst, src));
  });
}

void CudaKernels::Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype,
                       int64_t elements) {
  ForType(src_dtype, [&](auto from) {
    ForType(dst_dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      Run(SIMT_KERNEL(CastKernel<From, To>), BlocksOfPacks(elements, kWidth), kElementThreads, 0,
          static_cast<const From*>(src), static_cast<To*>(dst), elements, AllAligned(src, dst));
    });
  });
}

}  // namespace sherd
