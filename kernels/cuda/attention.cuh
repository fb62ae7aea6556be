#pragma once

// What the attention kernels in fp32 share. A block of 128 threads works on tiles of 32 queries and
// 32 keys in shared memory. Of a tile of scores thread t has row t / 4 and every fourth column from
// t % 4 on; of the rows of head_size channels likewise, at most kColumns of them.

#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {

inline constexpr int kTile = 32;
inline constexpr int kAttentionThreads = 128;
inline constexpr int kScoreStride = kTile + 1;

// Where one head's rows lie; strides in elements. One of key and value heads: its first query head.
struct HeadRows {
  int64_t q, k, v;     // of token 0, in qkv
  int64_t stride;      // between tokens of qkv
  int64_t out;         // of token 0, in out
  int64_t out_stride;  // between tokens of out
  int64_t lse;         // of token 0
};

__device__ __forceinline__ HeadRows RowsOf(const AttentionShape& shape, int64_t batch,
                                           int64_t head) {
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t stride = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  const int64_t token = batch * shape.tokens * stride;
  const int64_t k = token + (shape.heads + head / group) * shape.head_size;
  const int64_t out_stride = shape.heads * shape.head_size;
  return {token + head * shape.head_size,
          k,
          k + shape.kv_heads * shape.head_size,
          stride,
          batch * shape.tokens * out_stride + head * shape.head_size,
          out_stride,
          (batch * shape.heads + head) * shape.tokens};
}

// Between rows of a tile in shared memory: odd, so that a column's elements are in different banks.
__host__ __device__ __forceinline__ int64_t TileStride(int64_t head_size) { return head_size | 1; }

// Rows [first, first + kTile) of a matrix, zeros from `tokens` on, to a tile: as they are, or
// rounded to bf16.
template <bool kRounded>
__device__ __forceinline__ void LoadTile(const float* from, int64_t stride, int64_t first,
                                         int64_t tokens, int64_t head_size, float* tile) {
  const int64_t tile_stride = TileStride(head_size);
  for (int row = static_cast<int>(threadIdx.x / 32); row < kTile; row += kAttentionThreads / 32) {
    const bool there = first + row < tokens;
    for (int64_t d = threadIdx.x % 32; d < head_size; d += 32) {
      const float value = there ? from[(first + row) * stride + d] : 0.0f;
      tile[row * tile_stride + d] = kRounded ? RoundedToBf16(value) : value;
    }
  }
}

// Dot products of row t / 4 of `a` with the thread's eight rows of `b`.
__device__ __forceinline__ void DotRows(const float* a, const float* b, int64_t head_size,
                                        float (&dots)[kTile / 4]) {
  const int64_t stride = TileStride(head_size);
  const float* const row = a + threadIdx.x / 4 * stride;
  const float* const first = b + threadIdx.x % 4 * stride;
#pragma unroll
  for (int i = 0; i < kTile / 4; ++i) dots[i] = 0;
  for (int64_t d = 0; d < head_size; ++d) {
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i) dots[i] = fmaf(row[d], first[4 * i * stride + d], dots[i]);
  }
}

// sums (the thread's columns) += Σ over rows [begin, end) of weights[row · weight_stride] ·
// tile[row].
template <int kColumns>
__device__ __forceinline__ void AddWeightedRows(const float* weights, int weight_stride,
                                                const float* tile, int begin, int end,
                                                int64_t head_size, float (&sums)[kColumns]) {
  const int64_t stride = TileStride(head_size);
  for (int row = begin; row < end; ++row) {
    const float weight = weights[row * weight_stride];
    const float* const values = tile + row * stride + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      if (static_cast<int>(threadIdx.x % 4) + 4 * i < head_size) {
        sums[i] = fmaf(weight, values[4 * i], sums[i]);
      }
    }
  }
}

// Over the four threads that have a row.
__device__ __forceinline__ float SumOfRow(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  value += __shfl_xor_sync(kAllLanes, value, 2);
  return value;
}
__device__ __forceinline__ float MaxOfRow(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

inline float ScoreScale(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size)));
}

// Of `tiles` tiles in shared memory, and `scores` squares of scores.
inline size_t AttentionShared(int64_t head_size, int tiles, int scores) {
  return static_cast<size_t>(tiles * kTile * TileStride(head_size) +
                             scores * kTile * kScoreStride) *
         sizeof(float);
}

// body(integral constant) with the fewest columns of a thread that hold a head of at most
// kMostHeadChannels.
template <int kColumns>
struct ColumnCount {
  static constexpr int kValue = kColumns;
};
template <typename Body>
void ForColumns(int64_t head_size, const Body& body) {
  if (head_size <= 32) return body(ColumnCount<8>());
  if (head_size <= 64) return body(ColumnCount<16>());
  if (head_size <= 128) return body(ColumnCount<32>());
  return body(ColumnCount<64>());
}

}  // namespace sherd
