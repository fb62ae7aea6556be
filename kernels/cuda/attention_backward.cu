// Causal attention, backward, in fp32: weights are worked out again from the log-sum-exps. Keys'
// gradients and queries' are two kernels, so that each sum is one block's and has one order.

#include "kernels/cuda/attention.cuh"

namespace sherd {
namespace {

// delta (B, H, T) = Σ over channels of dout · out: what the softmax takes off every gradient of a
// row of weights. A warp a row.
__global__ void __launch_bounds__(kElementThreads)
    DeltaKernel(const float* dout, const float* out, float* delta, AttentionShape shape) {
  const int64_t index = int64_t{blockIdx.x} * (kElementThreads / 32) + threadIdx.x / 32;
  const int64_t token_rows = shape.batch * shape.tokens * shape.heads;
  if (index >= token_rows) return;
  // Rows as `out` has them: (B, T, H).
  const int64_t head = index % shape.heads, token = index / shape.heads;
  const float* const a = dout + index * shape.head_size;
  const float* const b = out + index * shape.head_size;
  float sum = 0;
  for (int64_t d = threadIdx.x % 32; d < shape.head_size; d += 32) sum = fmaf(a[d], b[d], sum);
  sum = SumOfWarp(sum);
  const int64_t batch = token / shape.tokens;
  if (threadIdx.x % 32 == 0) {
    delta[(batch * shape.heads + head) * shape.tokens + token % shape.tokens] = sum;
  }
}

// The tiles of one pair of query and key tiles, in shared memory.
struct Tiles {
  float *q, *dout, *k, *v;   // (kTile, TileStride)
  float *weights, *dscores;  // (kTile queries, kScoreStride)
};
__device__ __forceinline__ Tiles TilesIn(float* room, int64_t head_size) {
  const int64_t tile = kTile * TileStride(head_size);
  float* const scores = room + 4 * tile;
  return {
      room, room + tile, room + 2 * tile, room + 3 * tile, scores, scores + kTile * kScoreStride};
}

// Weights and gradients of scores, scale · p · (dp − delta), of the pair of tiles from
// `first_query` and `first_key` on; zeros where a query does not see a key.
__device__ __forceinline__ void WeightsAndGradients(const Tiles& tiles, int64_t first_query,
                                                    int64_t first_key, int64_t tokens,
                                                    int64_t head_size, float scale,
                                                    const float* lse, const float* delta) {
  const int row = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t query = first_query + row;
  float scores[kTile / 4], dweights[kTile / 4];
  DotRows(tiles.q, tiles.k, head_size, scores);
  DotRows(tiles.dout, tiles.v, head_size, dweights);
  const float of_lse = query < tokens ? lse[query] : 0.0f;
  const float of_delta = query < tokens ? delta[query] : 0.0f;
#pragma unroll
  for (int i = 0; i < kTile / 4; ++i) {
    const int column = quarter + 4 * i;
    const bool seen = query < tokens && first_key + column <= query;
    const float weight = seen ? expf(fmaf(scores[i], scale, -of_lse)) : 0.0f;
    tiles.weights[row * kScoreStride + column] = weight;
    tiles.dscores[row * kScoreStride + column] =
        seen ? weight * scale * (dweights[i] - of_delta) : 0.0f;
  }
}

// A block a tile of keys of one key and value head: over the heads that it serves, in order, and
// their queries.
template <int kColumns>
__global__ void __launch_bounds__(kAttentionThreads)
    KeyGradientKernel(const float* dout, const float* qkv, const float* lse, const float* delta,
                      float* dqkv, AttentionShape shape, int64_t tile_count, float scale) {
  SIMT_DYNAMIC_SHARED(float, room);
  const int64_t size = shape.head_size, tokens = shape.tokens;
  const Tiles tiles = TilesIn(room, size);
  const int64_t kv_index = blockIdx.x / tile_count;
  const int64_t first_key = blockIdx.x % tile_count * kTile;
  const int64_t batch = kv_index / shape.kv_heads;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t first_head = kv_index % shape.kv_heads * group;
  const HeadRows keys = RowsOf(shape, batch, first_head);
  LoadTile(qkv + keys.k, keys.stride, first_key, tokens, size, tiles.k);
  LoadTile(qkv + keys.v, keys.stride, first_key, tokens, size, tiles.v);
  const int row = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  float dk[kColumns] = {}, dv[kColumns] = {};
  for (int64_t head = first_head; head < first_head + group; ++head) {
    const HeadRows rows = RowsOf(shape, batch, head);
    for (int64_t query = first_key; query < tokens; query += kTile) {
      // The tiles before are still read.
      __syncthreads();
      LoadTile(qkv + rows.q, rows.stride, query, tokens, size, tiles.q);
      LoadTile(dout + rows.out, rows.out_stride, query, tokens, size, tiles.dout);
      __syncthreads();
      WeightsAndGradients(tiles, query, first_key, tokens, size, scale, lse + rows.lse,
                          delta + rows.lse);
      __syncthreads();
      // Queries before the key do not see it.
      const int begin = static_cast<int>(max(int64_t{0}, first_key + row - query));
      AddWeightedRows(tiles.weights + row, kScoreStride, tiles.dout, begin, kTile, size, dv);
      AddWeightedRows(tiles.dscores + row, kScoreStride, tiles.q, begin, kTile, size, dk);
    }
  }
  if (first_key + row >= tokens) return;
  const int64_t at = (first_key + row) * keys.stride;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (quarter + 4 * i >= size) continue;
    dqkv[keys.k + at + quarter + 4 * i] = dk[i];
    dqkv[keys.v + at + quarter + 4 * i] = dv[i];
  }
}

// A block a tile of queries of one head.
template <int kColumns>
__global__ void __launch_bounds__(kAttentionThreads)
    QueryGradientKernel(const float* dout, const float* qkv, const float* lse, const float* delta,
                        float* dqkv, AttentionShape shape, int64_t tile_count, float scale) {
  SIMT_DYNAMIC_SHARED(float, room);
  const int64_t size = shape.head_size, tokens = shape.tokens;
  const Tiles tiles = TilesIn(room, size);
  const int64_t head_index = blockIdx.x / tile_count;
  const int64_t first_query = (tile_count - 1 - blockIdx.x % tile_count) * kTile;
  const HeadRows rows = RowsOf(shape, head_index / shape.heads, head_index % shape.heads);
  LoadTile(qkv + rows.q, rows.stride, first_query, tokens, size, tiles.q);
  LoadTile(dout + rows.out, rows.out_stride, first_query, tokens, size, tiles.dout);
  const int row = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t query = first_query + row;
  float dq[kColumns] = {};
  for (int64_t key = 0; key < first_query + kTile && key < tokens; key += kTile) {
    __syncthreads();
    LoadTile(qkv + rows.k, rows.stride, key, tokens, size, tiles.k);
    LoadTile(qkv + rows.v, rows.stride, key, tokens, size, tiles.v);
    __syncthreads();
    WeightsAndGradients(tiles, first_query, key, tokens, size, scale, lse + rows.lse,
                        delta + rows.lse);
    // A row's gradients are its four threads'.
    __syncwarp();
    const int seen = static_cast<int>(min(int64_t{kTile}, query - key + 1));
    AddWeightedRows(tiles.dscores + row * kScoreStride, 1, tiles.k, 0, seen, size, dq);
  }
  if (query >= tokens) return;
  float* const to = dqkv + rows.q + query * rows.stride;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (quarter + 4 * i < size) to[quarter + 4 * i] = dq[i];
  }
}

}  // namespace

void CudaKernels::AttentionBackward(const float* dout, const float* qkv, const float* out,
                                    const float* lse, float* dqkv, const AttentionShape& shape) {
  if (!TakesHeads(shape)) return;
  const int64_t rows = shape.batch * shape.tokens * shape.heads;
  const int64_t tiles = CeilDiv(shape.tokens, kTile);
  float* const delta = Scratch<float>(rows);
  Run(SIMT_KERNEL(DeltaKernel), CeilDiv(rows, kElementThreads / 32), kElementThreads, 0, dout, out,
      delta, shape);
  const size_t shared = AttentionShared(shape.head_size, 4, 2);
  ForColumns(shape.head_size, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::kValue;
    Run(SIMT_KERNEL(KeyGradientKernel<kColumns>), shape.batch * shape.kv_heads * tiles,
        kAttentionThreads, shared, dout, qkv, lse, delta, dqkv, shape, tiles, ScoreScale(shape));
    Run(SIMT_KERNEL(QueryGradientKernel<kColumns>), shape.batch * shape.heads * tiles,
        kAttentionThreads, shared, dout, qkv, lse, delta, dqkv, shape, tiles, ScoreScale(shape));
  });
}

}  // namespace sherd
