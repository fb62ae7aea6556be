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

// What a row's gradient is made of beside its softmax. Without options 0 is subtracted everywhere,
// and multiplied by 1, which changes no bit.
struct RowObjective {
  // Subtracted at the target, and at every entry.
  float at_target, everywhere;
  double twice_z_loss;

  // On the softmax of a row whose Σ e^(logit − highest) is `sum`.
  __device__ double Factor(float sum, float highest) const {
    if (twice_z_loss == 0) return 1;
    return 1 + twice_z_loss * (log(static_cast<double>(sum)) + static_cast<double>(highest));
  }
};

inline RowObjective ObjectiveOf(float scale, const LossOptions& options, int64_t vocabulary) {
  const double smoothing = options.label_smoothing;
  return {.at_target = static_cast<float>(scale * (1 - smoothing)),
          .everywhere = static_cast<float>(scale * smoothing / static_cast<double>(vocabulary)),
          .twice_z_loss = 2 * options.z_loss};
}

// Multiplies what SumOfExps left, in the same places, and subtracts what the objective says; the
// target may be none of the columns.
__device__ __forceinline__ void ScaleToGradient(float* logits, int64_t columns, float factor,
                                                int64_t target, const RowObjective& objective,
                                                bool whole) {
  for (int64_t c = FirstLogit(); c < columns; c += kLossStride) {
    const int64_t left = columns - c;
    Pack<kLossWidth> pack = LoadPack<kLossWidth>(logits + c, left, whole);
#pragma unroll
    for (int i = 0; i < kLossWidth; ++i) {
      pack.v[i] = pack.v[i] * factor - objective.everywhere;
      if (c + i == target) pack.v[i] = pack.v[i] - objective.at_target;
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
