// Causal attention, backward, in fp32: weights are worked out again from the log-sum-exps. Keys'
// gradients and queries' are two kernels, so that each sum is one block's and has one order.
//
// Where forward ran on tensor cores (attention_bf16.cu) the function whose gradients are wanted has
// queries, keys, values and weights rounded to bf16. With kRounded the same are: outputs are Σ w v
// / Σ p with w the rounded weights p, so values' gradients take w, and a score's is w · dp − p ·
// delta. A rounding counts as a factor, which is what it is on average over scores.

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

// A weight as it is, and as values were multiplied with it.
struct Weight {
  float exact, used;
};
template <bool kRounded>
__device__ __forceinline__ Weight WeightOf(float score, float scale, float lse) {
  if constexpr (kRounded) {
    // As forward: in units of log2(e), rounded beside a whole number.
    const float in_twos = score * (scale * kLog2E), lse_in_twos = lse * kLog2E;
    const float whole = ceilf(lse_in_twos);
    return {exp2f(in_twos - lse_in_twos),
            RoundedToBf16(exp2f(in_twos - whole)) * exp2f(whole - lse_in_twos)};
  } else {
    const float weight = expf(fmaf(score, scale, -lse));
    return {weight, weight};
  }
}

// Weights and gradients of scores, scale · p · (dp − delta), of the pair of tiles from
// `first_query` and `first_key` on; zeros where a query does not see a key.
template <bool kRounded>
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
    const Weight weight = seen ? WeightOf<kRounded>(scores[i], scale, of_lse) : Weight{};
    tiles.weights[row * kScoreStride + column] = weight.used;
    float dscore = 0;
    if (seen) {
      dscore = kRounded ? scale * (weight.used * dweights[i] - weight.exact * of_delta)
                        : weight.exact * scale * (dweights[i] - of_delta);
    }
    tiles.dscores[row * kScoreStride + column] = dscore;
  }
}

// A block a tile of keys of one key and value head: over the heads that it serves, in order, and
// their queries.
template <int kColumns, bool kRounded>
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
  LoadTile<kRounded>(qkv + keys.k, keys.stride, first_key, tokens, size, tiles.k);
  LoadTile<kRounded>(qkv + keys.v, keys.stride, first_key, tokens, size, tiles.v);
  const int row = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  float dk[kColumns] = {}, dv[kColumns] = {};
  for (int64_t head = first_head; head < first_head + group; ++head) {
    const HeadRows rows = RowsOf(shape, batch, head);
    for (int64_t query = first_key; query < tokens; query += kTile) {
      // The tiles before are still read.
      __syncthreads();
      LoadTile<kRounded>(qkv + rows.q, rows.stride, query, tokens, size, tiles.q);
      LoadTile<false>(dout + rows.out, rows.out_stride, query, tokens, size, tiles.dout);
      __syncthreads();
      WeightsAndGradients<kRounded>(tiles, query, first_key, tokens, size, scale, lse + rows.lse,
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
template <int kColumns, bool kRounded>
__global__ void __launch_bounds__(kAttentionThreads)
    QueryGradientKernel(const float* dout, const float* qkv, const float* lse, const float* delta,
                        float* dqkv, AttentionShape shape, int64_t tile_count, float scale) {
  SIMT_DYNAMIC_SHARED(float, room);
  const int64_t size = shape.head_size, tokens = shape.tokens;
  const Tiles tiles = TilesIn(room, size);
  const int64_t head_index = blockIdx.x / tile_count;
  const int64_t first_query = (tile_count - 1 - blockIdx.x % tile_count) * kTile;
  const HeadRows rows = RowsOf(shape, head_index / shape.heads, head_index % shape.heads);
  LoadTile<kRounded>(qkv + rows.q, rows.stride, first_query, tokens, size, tiles.q);
  LoadTile<false>(dout + rows.out, rows.out_stride, first_query, tokens, size, tiles.dout);
  const int row = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t query = first_query + row;
  float dq[kColumns] = {};
  for (int64_t key = 0; key < first_query + kTile && key < tokens; key += kTile) {
    __syncthreads();
    LoadTile<kRounded>(qkv + rows.k, rows.stride, key, tokens, size, tiles.k);
    LoadTile<kRounded>(qkv + rows.v, rows.stride, key, tokens, size, tiles.v);
    __syncthreads();
    WeightsAndGradients<kRounded>(tiles, first_query, key, tokens, size, scale, lse + rows.lse,
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
                                    const float* lse, float* dqkv, const AttentionShape& shape,
                                    bool of_tensor_cores) {
  if (!TakesHeads(shape)) return;
  const int64_t rows = shape.batch * shape.tokens * shape.heads;
  const int64_t tiles = CeilDiv(shape.tokens, kTile);
  float* const delta = Scratch<float>(rows);
  Run(SIMT_KERNEL(DeltaKernel), CeilDiv(rows, kElementThreads / 32), kElementThreads, 0, dout, out,
      delta, shape);
  const size_t shared = AttentionShared(shape.head_size, 4, 2);
  ForColumns(shape.head_size, [&](auto columns) {
    constexpr int kColumns = decltype(columns)::kValue;
    const auto run = [&](const auto& of_keys, const auto& of_queries) {
      Run(of_keys, shape.batch * shape.kv_heads * tiles, kAttentionThreads, shared, dout, qkv, lse,
          delta, dqkv, shape, tiles, ScoreScale(shape));
      Run(of_queries, shape.batch * shape.heads * tiles, kAttentionThreads, shared, dout, qkv, lse,
          delta, dqkv, shape, tiles, ScoreScale(shape));
    };
    if (of_tensor_cores) {
      run(SIMT_KERNEL(KeyGradientKernel<kColumns, true>),
          SIMT_KERNEL(QueryGradientKernel<kColumns, true>));
    } else {
      run(SIMT_KERNEL(KeyGradientKernel<kColumns, false>),
          SIMT_KERNEL(QueryGradientKernel<kColumns, false>));
    }
  });
}

}  // namespace sherd
