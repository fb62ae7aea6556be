#pragma once

// What the normalisations share: how columns of a row are dealt out to the threads of a block.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/simt.h"
#include "kernels/cuda/values.cuh"

namespace sherd {

inline constexpr int kNormWidth = 4;
inline constexpr int kMostNormThreads = 256;
// Rows whose gradients of weights one block sums; as the CPU's, so that rounding is alike.
inline constexpr int64_t kNormRows = 32;

// Threads of a block, which the order of sums depends on: of the number of channels alone.
inline int NormThreads(int64_t channels) { return channels <= 1024 ? 128 : kMostNormThreads; }

__device__ __forceinline__ int64_t FirstColumn() { return int64_t{threadIdx.x} * kNormWidth; }
__device__ __forceinline__ int64_t ColumnStride() { return int64_t{blockDim.x} * kNormWidth; }

__host__ __device__ __forceinline__ int64_t PaddedColumns(int64_t channels) {
  return (channels + kNormWidth - 1) / kNormWidth * kNormWidth;
}

// Sums of a block that take more than this are kept in global memory: every card that there are
// kernels for has so much shared memory for a block.
inline constexpr size_t kMostSumBytes = 96 << 10;

// What is beyond a row's end must be zero.
__device__ __forceinline__ float SumOfPack(const Pack<kNormWidth>& pack) {
  return (pack.v[0] + pack.v[1]) + (pack.v[2] + pack.v[3]);
}

}  // namespace sherd
