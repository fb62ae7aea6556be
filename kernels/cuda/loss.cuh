#pragma once

// Cross-entropy of one row of logits by one block. Columns are dealt out to threads by their number
// alone.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {

inline constexpr int kLossThreads = 256;
inline constexpr int kLossWidth = 4;
inline constexpr int64_t kLossStride = int64_t{kLossThreads} * kLossWidth;

__device__ __forceinline__ int64_t FirstLogit() { return int64_t{threadIdx.x} * kLossWidth; }

// -infinity when there are none. A NaN is passed over: it shows in the sum.
__device__ __forceinline__ float HighestOfRow(const float* logits, int64_t columns, bool whole) {
  float highest = -INFINITY;
  for (int64_t c = FirstLogit(); c < columns; c += kLossStride) {
    const int64_t left = columns - c;
    const Pack<kLossWidth> pack = LoadPack<kLossWidth>(logits + c, left, whole);
#pragma unroll
    for (int i = 0; i < kLossWidth; ++i) {
      if (i < left) highest = fmaxf(highest, pack.v[i]);
    }
  }
  return MaxOfBlock(highest);
}

// Σ e^(logit − highest); the terms replace the logits when kKeep.
template <bool kKeep, typename Logit>
__device__ __forceinline__ float SumOfExps(Logit* logits, int64_t columns, float highest,
                                           bool whole) {
  float sum = 0;
  for (int64_t c = FirstLogit(); c < columns; c += kLossStride) {
    const int64_t left = columns - c;
    Pack<kLossWidth> pack = LoadPack<kLossWidth>(logits + c, left, whole);
#pragma unroll
    for (int i = 0; i < kLossWidth; ++i) {
      pack.v[i] = expf(pack.v[i] - highest);
      if (i < left) sum = sum + pack.v[i];
    }
    if constexpr (kKeep) StorePack(pack, logits + c, left, whole);
  }
  return SumOfBlock(sum);
}

// Multiplies what SumOfExps left, in the same places, and subtracts `scale` at the target, if it is
// one of the columns.
__device__ __forceinline__ void ScaleToGradient(float* logits, int64_t columns, float factor,
                                                int64_t target, float scale, bool whole) {
  for (int64_t c = FirstLogit(); c < columns; c += kLossStride) {
    const int64_t left = columns - c;
    Pack<kLossWidth> pack = LoadPack<kLossWidth>(logits + c, left, whole);
#pragma unroll
    for (int i = 0; i < kLossWidth; ++i) {
      pack.v[i] = pack.v[i] * factor;
      if (c + i == target) pack.v[i] = pack.v[i] - scale;
    }
    StorePack(pack, logits + c, left, whole);
  }
}

__device__ __forceinline__ void ZeroRow(float* logits, int64_t columns, bool whole) {
  for (int64_t c = FirstLogit(); c < columns; c += kLossStride) {
    StorePack(Pack<kLossWidth>{}, logits + c, columns - c, whole);
  }
}

// Whether rows of so many columns begin at 16-byte boundaries.
inline bool RowsAligned(const float* logits, int64_t columns) {
  return columns % kLossWidth == 0 && AllAligned(logits);
}

}  // namespace sherd
