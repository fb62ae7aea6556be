#pragma once

// Sums and maxima over a block, in an order that depends on the block's size alone. Blocks are of
// whole warps, at most 32 of them; all threads take part and get the result.

#include <cstdint>

#include "kernels/cuda/simt.h"

namespace sherd {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ float SumOfWarp(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

// A NaN is passed over, as fmaxf does.
__device__ __forceinline__ float MaxOfWarp(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

// Two sums at once.
__device__ __forceinline__ void SumOfBlock(float& a, float& b) {
  SIMT_SHARED(float, of_warps, [64]);
  a = SumOfWarp(a);
  b = SumOfWarp(b);
  const int warp = static_cast<int>(threadIdx.x / 32), warps = static_cast<int>(blockDim.x / 32);
  // What the sum before left may still be read.
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    of_warps[2 * warp] = a;
    of_warps[2 * warp + 1] = b;
  }
  __syncthreads();
  a = of_warps[0];
  b = of_warps[1];
  for (int i = 1; i < warps; ++i) {
    a += of_warps[2 * i];
    b += of_warps[2 * i + 1];
  }
}

__device__ __forceinline__ float SumOfBlock(float value) {
  SIMT_SHARED(float, of_warps, [32]);
  value = SumOfWarp(value);
  const int warp = static_cast<int>(threadIdx.x / 32), warps = static_cast<int>(blockDim.x / 32);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[warp] = value;
  __syncthreads();
  value = of_warps[0];
  for (int i = 1; i < warps; ++i) value += of_warps[i];
  return value;
}

__device__ __forceinline__ float MaxOfBlock(float value) {
  SIMT_SHARED(float, of_warps, [32]);
  value = MaxOfWarp(value);
  const int warp = static_cast<int>(threadIdx.x / 32), warps = static_cast<int>(blockDim.x / 32);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[warp] = value;
  __syncthreads();
  value = of_warps[0];
  for (int i = 1; i < warps; ++i) value = fmaxf(value, of_warps[i]);
  return value;
}

}  // namespace sherd
