// Causal attention with online softmax (Dao et al. 2022), forward, in fp32.

#include "kernels/cuda/attention.cuh"

namespace sherd {
namespace {

// A block a tile of queries of one head; the last tiles, which see the most keys, first.
// One block is all that is asked of the compiler: for more it would spill registers.
template <int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    AttentionForwardKernel(const float* qkv, float* out, float* lse, AttentionShape shape,
                           int64_t tiles, float scale) {
  SIMT_DYNAMIC_SHARED(float, room);
  const int64_t size = shape.head_size, tokens = shape.tokens;
  float* const q_tile = room;
  float* const k_tile = q_tile + kTile * TileStride(size);
  float* const v_tile = k_tile + kTile * TileStride(size);
  float* const weights = v_tile + kTile * TileStride(size);  // (kTile, kScoreStride)
  const int64_t head_index = blockIdx.x / tiles;
  const int64_t first = (tiles - 1 - blockIdx.x % tiles) * kTile;
  const HeadRows rows = RowsOf(shape, head_index / shape.heads, head_index % shape.heads);
  const int row = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t query = first + row;

  LoadTile<false>(qkv + rows.q, rows.stride, first, tokens, size, q_tile);
  float sums[kColumns] = {}, highest = -INFINITY, weight_sum = 0;
  for (int64_t key = 0; key < first + kTile && key < tokens; key += kTile) {
    // The tile before is still read.
    __syncthreads();
    LoadTile<false>(qkv + rows.k, rows.stride, key, tokens, size, k_tile);
    LoadTile<false>(qkv + rows.v, rows.stride, key, tokens, size, v_tile);
    __syncthreads();
    float scores[kTile / 4];
    DotRows(q_tile, k_tile, size, scores);
    float now = highest;
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i) {
      scores[i] = key + quarter + 4 * i <= query ? scores[i] * scale : -INFINITY;
      now = fmaxf(now, scores[i]);
    }
    now = MaxOfRow(now);
    const float shrink = expf(highest - now);
    highest = now;
    float added = 0;
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i) {
      const float weight = expf(scores[i] - now);
      added = added + weight;
      weights[row * kScoreStride + quarter + 4 * i] = weight;
    }
    weight_sum = fmaf(weight_sum, shrink, SumOfRow(added));
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sums[i] = sums[i] * shrink;
    // A row's weights are its four threads'.
    __syncwarp();
    const int seen = static_cast<int>(min(int64_t{kTile}, query - key + 1));
    AddWeightedRows(weights + row * kScoreStride, 1, v_tile, 0, seen, size, sums);
  }
  if (query >= tokens) return;
  float* const to = out + rows.out + query * rows.out_stride;
  const float inverse = 1.0f / weight_sum;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (quarter + 4 * i < size) to[quarter + 4 * i] = sums[i] * inverse;
  }
  if (quarter == 0) lse[rows.lse + query] = highest + logf(weight_sum);
}

}  // namespace

bool CudaKernels::TakesHeads(const AttentionShape& shape) {
  if (shape.head_size <= kMostHeadChannels) return true;
  if (failure_.empty()) {
    failure_ = "attention: heads have " + std::to_string(shape.head_size) +
               " channels, and there are kernels for up to " + std::to_string(kMostHeadChannels);
  }
  return false;
}

void CudaKernels::AttentionForward(const float* qkv, float* out, float* lse,
                                   const AttentionShape& shape) {
  if (!TakesHeads(shape)) return;
  const int64_t tiles = CeilDiv(shape.tokens, kTile);
  ForColumns(shape.head_size, [&](auto columns) {
    Run(SIMT_KERNEL(AttentionForwardKernel<decltype(columns)::kValue>),
        shape.batch * shape.heads * tiles, kAttentionThreads,
        AttentionShared(shape.head_size, 3, 1), qkv, out, lse, shape, tiles, ScoreScale(shape));
  });
}

}  // namespace sherd
