// Rotary position embedding.

#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

// Radians a token of pair `index`.
__device__ __forceinline__ double Frequency(const RotaryParams& params, int64_t index,
                                            int64_t head_size) {
  const double plain =
      pow(params.theta, -2.0 * static_cast<double>(index) / static_cast<double>(head_size));
  if (params.factor == 1) return plain;
  constexpr double kTwicePi = 6.283185307179586476925;
  // How many waves fit into the context that the model was first trained with.
  const double waves = static_cast<double>(params.original_context) * plain / kTwicePi;
  const double share = fmin(
      fmax((waves - params.low_freq_factor) / (params.high_freq_factor - params.low_freq_factor),
           0.0),
      1.0);
  return share * plain + (1 - share) * plain / params.factor;
}

// A thread a pair and token, in double precision.
__global__ void __launch_bounds__(kElementThreads)
    RotaryTableKernel(RotaryParams params, float* table, int64_t tokens, int64_t head_size) {
  const int64_t half = head_size / 2;
  const PackOfRow p = FindPack<1>(half);
  if (p.row >= tokens) return;
  const double angle = static_cast<double>(p.row) * Frequency(params, p.column, head_size);
  table[p.row * head_size + p.column] = static_cast<float>(cos(angle));
  table[p.row * head_size + half + p.column] = static_cast<float>(sin(angle));
}

// A thread a pack of pairs of one head of one token. `turned` heads, queries then keys, lie one
// behind the other.
template <int kWidth>
__global__ void __launch_bounds__(kElementThreads)
    TurnKernel(float* qkv, const float* table, int64_t rows, int64_t tokens, int64_t turned,
               int64_t qkv_channels, int64_t head_size, bool whole, bool back) {
  const int64_t half = head_size / 2;
  const PackOfRow p = FindPack<kWidth>(turned * half);
  if (p.row >= rows) return;
  // Packs of more than one pair are taken only where they lie in one head.
  const int64_t head = p.column / half, pair = p.column % half;
  float* const first = qkv + p.row * qkv_channels + head * head_size + pair;
  const float* const angles = table + p.row % tokens * head_size + pair;
  Pack<kWidth> a = LoadPack<kWidth>(first, kWidth, whole);
  Pack<kWidth> b = LoadPack<kWidth>(first + half, kWidth, whole);
  const Pack<kWidth> cosine = LoadPack<kWidth>(angles, kWidth, whole);
  const Pack<kWidth> sine = LoadPack<kWidth>(angles + half, kWidth, whole);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float turn = back ? -sine.v[i] : sine.v[i];
    const float x = a.v[i], y = b.v[i];
    a.v[i] = fmaf(-y, turn, x * cosine.v[i]);
    b.v[i] = fmaf(x, turn, y * cosine.v[i]);
  }
  StorePack(a, first, kWidth, whole);
  StorePack(b, first + half, kWidth, whole);
}

}  // namespace

void CudaKernels::RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                              int64_t head_size) {
  Run(SIMT_KERNEL(RotaryTableKernel), BlocksOfPacks(tokens * (head_size / 2), 1), kElementThreads,
      0, params, table, tokens, head_size);
}

void CudaKernels::RotaryForward(float* qkv, const float* table, const AttentionShape& shape) {
  Turn(qkv, table, shape, /*back=*/false);
}

void CudaKernels::RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) {
  Turn(dqkv, table, shape, /*back=*/true);
}

void CudaKernels::Turn(float* qkv, const float* table, const AttentionShape& shape, bool back) {
  const int64_t rows = shape.batch * shape.tokens;
  const int64_t turned = shape.heads + shape.kv_heads;
  const int64_t pairs = turned * (shape.head_size / 2);
  if (shape.head_size % 8 == 0) {
    Run(SIMT_KERNEL(TurnKernel<4>), BlocksOfPacks(rows * (pairs / 4), 1), kElementThreads, 0, qkv,
        table, rows, shape.tokens, turned, shape.qkv_channels(), shape.head_size,
        AllAligned(qkv, table), back);
  } else {
    Run(SIMT_KERNEL(TurnKernel<1>), BlocksOfPacks(rows * pairs, 1), kElementThreads, 0, qkv, table,
        rows, shape.tokens, turned, shape.qkv_channels(), shape.head_size, false, back);
  }
}

}  // namespace sherd
