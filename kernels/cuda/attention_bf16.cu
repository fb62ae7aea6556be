// Causal attention with online softmax (Dao et al. 2022), forward, on tensor cores: products of
// bf16, sums and softmax in fp32.
//
// Weights are rounded as 2^(score − n), where n is a whole number: whichever it is, the rounding is
// the same up to a power of two. So how a weight is rounded depends on its score alone, not on how
// far the running maximum is, and backward (attention_backward.cu) can do it again.

#include <cmath>

#include "common/check.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

// Four warps of 16 queries each, over tiles of as many keys, of which the next is fetched while one
// is worked on.
constexpr int kThreads = 128;
constexpr int kRows = 64;
constexpr float kLn2 = 0.6931471805599453f;

// Elements between rows of a tile: 16 bytes more than a row, so that the rows of an 8 × 8 matrix
// are in different banks.
template <int kHeadSize>
inline constexpr int kStride = kHeadSize + 8;

// What a tile is fetched from: rows of one head.
template <typename T>
struct HeadMatrix {
  const T* data;
  int64_t stride, tokens;
};

__device__ __forceinline__ void StoreEight(const Pack<8>& pack, uint16_t* to) {
  *reinterpret_cast<uint4*>(to) =
      uint4{RoundPair(pack.v[0], pack.v[1]), RoundPair(pack.v[2], pack.v[3]),
            RoundPair(pack.v[4], pack.v[5]), RoundPair(pack.v[6], pack.v[7])};
}

// Eight elements to shared memory as bf16; asynchronously where that is a copy.
__device__ __forceinline__ void Fetch(const float* from, uint16_t* to, bool whole) {
  StoreEight(LoadPack<8>(from, 8, whole), to);
}
__device__ __forceinline__ void Fetch(const BF16* from, uint16_t* to, bool whole) {
  if (whole) {
    CopyAsync16(to, from);
  } else {
    StoreEight(LoadPack<8>(from, 8, false), to);
  }
}

// Rows [first, first + kRows), zeros beyond the last token.
template <int kHeadSize, typename T>
__device__ __forceinline__ void FetchTile(const HeadMatrix<T>& from, int64_t first, uint16_t* tile,
                                          bool whole) {
  constexpr int kPacks = kHeadSize / 8;
  // More at once would not fit the registers.
#pragma unroll 2
  for (int i = 0; i < kRows * kPacks / kThreads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kThreads;
    const int row = index / kPacks, column = index % kPacks * 8;
    uint16_t* const to = tile + row * kStride<kHeadSize> + column;
    if (first + row < from.tokens) {
      Fetch(from.data + (first + row) * from.stride + column, to, whole);
    } else {
      StoreEight(Pack<8>{}, to);
    }
  }
}

// Queries of a warp against a tile of keys: scores (16, kRows), of which a thread has, for each 8
// keys, two neighbours of row lane / 4 and two of the row 8 below.
template <int kHeadSize>
__device__ __forceinline__ void Scores(const uint32_t (&queries)[kHeadSize / 16][4],
                                       const uint16_t* k_tile, float (&scores)[kRows / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = 0;
      // Two steps of 16 channels at a time.
#pragma unroll
    for (int step = 0; step < kHeadSize / 16; step += 2) {
      uint32_t keys[4];
      LoadMatrices4(keys,
                    k_tile + (n * 8 + lane % 8) * kStride<kHeadSize> + step * 16 + lane / 8 * 8);
      MultiplyAdd16x8x16(scores[n], queries[step], {keys[0], keys[1]});
      MultiplyAdd16x8x16(scores[n], queries[step + 1], {keys[2], keys[3]});
    }
  }
}

// What a thread knows of one of its two rows of queries: scores are in units of log2(e); the
// highest is rounded up to a whole number.
struct RowState {
  float highest, sum;
};

// Scores of row `half` become weights, 2^(score − highest), or 0 for keys after `query`; gives what
// sums so far are to be multiplied with.
__device__ __forceinline__ float Soften(float (&scores)[kRows / 8][4], int half, int64_t first_key,
                                        int64_t query, float scale, RowState& row) {
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  float now = row.highest;
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      score = first_key + n * 8 + column + i <= query ? score * scale : -INFINITY;
      now = fmaxf(now, score);
    }
  }
  now = fmaxf(now, __shfl_xor_sync(kAllLanes, now, 1));
  now = ceilf(fmaxf(now, __shfl_xor_sync(kAllLanes, now, 2)));
  const float shrink = exp2f(row.highest - now);
  float added = 0;
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][2 * half + i];
      score = exp2f(score - now);
      added = added + score;
    }
  }
  row.highest = now;
  row.sum = fmaf(row.sum, shrink, added);
  return shrink;
}

// sums (16, D) += weights · values. The layout of scores is that of a left factor.
template <int kHeadSize>
__device__ __forceinline__ void AddValues(const float (&weights)[kRows / 8][4],
                                          const uint16_t* v_tile, float (&sums)[kHeadSize / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    const float(&low)[4] = weights[2 * step];
    const float(&high)[4] = weights[2 * step + 1];
    const uint32_t left[4] = {RoundPair(low[0], low[1]), RoundPair(low[2], low[3]),
                              RoundPair(high[0], high[1]), RoundPair(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kHeadSize / 8; n += 2) {
      uint32_t values[4];
      LoadMatrices4Transposed(
          values, v_tile + (step * 16 + lane % 16) * kStride<kHeadSize> + n * 8 + lane / 16 * 8);
      MultiplyAdd16x8x16(sums[n], left, {values[0], values[1]});
      MultiplyAdd16x8x16(sums[n + 1], left, {values[2], values[3]});
    }
  }
}

__device__ __forceinline__ void StorePair(float first, float second, float* to, bool) {
  to[0] = first;
  to[1] = second;
}
__device__ __forceinline__ void StorePair(float first, float second, BF16* to, bool whole) {
  if (whole) {
    *reinterpret_cast<uint32_t*>(to) = Bf16Pair(first, second);
  } else {
    Store(first, to);
    Store(second, to + 1);
  }
}

// A block a tile of queries of one head; the last tiles, which see the most keys, first.
template <int kHeadSize, typename T>
__global__ void __launch_bounds__(kThreads)
    TensorCoreAttentionKernel(const T* qkv, T* out, float* lse, AttentionShape shape, int64_t tiles,
                              float scale, bool whole) {
  constexpr int kTile = kRows * kStride<kHeadSize>;
  SIMT_DYNAMIC_SHARED(uint16_t, room);
  uint16_t* const q_tile = room;
  uint16_t* const k_tiles = q_tile + kTile;  // two
  uint16_t* const v_tiles = k_tiles + 2 * kTile;
  const int64_t head_index = blockIdx.x / tiles;
  const int64_t first = (tiles - 1 - blockIdx.x % tiles) * kRows;
  const int64_t batch = head_index / shape.heads, head = head_index % shape.heads;
  const int64_t stride = (shape.heads + 2 * shape.kv_heads) * kHeadSize;
  const T* const tokens = qkv + batch * shape.tokens * stride;
  const int64_t k_head = shape.heads + head / (shape.heads / shape.kv_heads);
  const HeadMatrix<T> q{tokens + head * kHeadSize, stride, shape.tokens};
  const HeadMatrix<T> k{tokens + k_head * kHeadSize, stride, shape.tokens};
  const HeadMatrix<T> v{tokens + (k_head + shape.kv_heads) * kHeadSize, stride, shape.tokens};

  FetchTile<kHeadSize>(q, first, q_tile, whole);
  FetchTile<kHeadSize>(k, 0, k_tiles, whole);
  FetchTile<kHeadSize>(v, 0, v_tiles, whole);
  CommitCopies();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  uint32_t queries[kHeadSize / 16][4];
  float sums[kHeadSize / 8][4] = {};
  RowState rows[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  const int64_t first_query = first + warp * 16 + lane / 4;
  const int64_t count = first / kRows + 1;
  for (int64_t t = 0; t < count; ++t) {
    const int now = static_cast<int>(t % 2) * kTile, next = kTile - now;
    if (t + 1 < count) {
      FetchTile<kHeadSize>(k, (t + 1) * kRows, k_tiles + next, whole);
      FetchTile<kHeadSize>(v, (t + 1) * kRows, v_tiles + next, whole);
    }
    CommitCopies();
    // All but the next tile.
    WaitForCopies<1>();
    __syncthreads();
    if (t == 0) {
#pragma unroll
      for (int step = 0; step < kHeadSize / 16; ++step) {
        LoadMatrices4(queries[step], q_tile + (warp * 16 + lane % 16) * kStride<kHeadSize> +
                                         step * 16 + lane / 16 * 8);
      }
    }
    float scores[kRows / 8][4];
    Scores<kHeadSize>(queries, k_tiles + now, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shrink =
          Soften(scores, half, t * kRows, first_query + 8 * half, scale, rows[half]);
#pragma unroll
      for (int n = 0; n < kHeadSize / 8; ++n) {
        sums[n][2 * half] = sums[n][2 * half] * shrink;
        sums[n][2 * half + 1] = sums[n][2 * half + 1] * shrink;
      }
    }
    AddValues<kHeadSize>(scores, v_tiles + now, sums);
    // The tile after the next goes where this one is.
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows[half].sum;
    sum = sum + __shfl_xor_sync(kAllLanes, sum, 1);
    sum = sum + __shfl_xor_sync(kAllLanes, sum, 2);
    const int64_t query = first_query + 8 * half;
    if (query >= shape.tokens) continue;
    const float inverse = 1.0f / sum;
    T* const to = out + ((batch * shape.tokens + query) * shape.heads + head) * kHeadSize;
#pragma unroll
    for (int n = 0; n < kHeadSize / 8; ++n) {
      StorePair(sums[n][2 * half] * inverse, sums[n][2 * half + 1] * inverse,
                to + n * 8 + lane % 4 * 2, whole);
    }
    if (lane % 4 == 0) {
      lse[(batch * shape.heads + head) * shape.tokens + query] =
          (rows[half].highest + log2f(sum)) * kLn2;
    }
  }
}

}  // namespace

bool CudaKernels::HasTensorCoreAttention(const AttentionShape& shape) {
  return shape.head_size == 64 || shape.head_size == 128;
}

void CudaKernels::TensorCoreAttentionForward(const void* qkv, void* out, DType dtype, float* lse,
                                             const AttentionShape& shape) {
  SHERD_CHECK(HasTensorCoreAttention(shape));
  const int64_t tiles = CeilDiv(shape.tokens, kRows);
  const float scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size))) * kLog2E;
  const auto run = [&](const auto& kernel, auto type, int stride) {
    using T = decltype(type);
    Run(kernel, shape.batch * shape.heads * tiles, kThreads,
        static_cast<size_t>(5 * kRows * stride) * sizeof(uint16_t), static_cast<const T*>(qkv),
        static_cast<T*>(out), lse, shape, tiles, scale, AllAligned(qkv, out));
  };
  ForType(dtype, [&](auto type) {
    using T = decltype(type);
    if (shape.head_size == 64) {
      run(SIMT_KERNEL(TensorCoreAttentionKernel<64, T>), type, kStride<64>);
    } else {
      run(SIMT_KERNEL(TensorCoreAttentionKernel<128, T>), type, kStride<128>);
    }
  });
}

}  // namespace sherd
