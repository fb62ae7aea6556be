#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tiling.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// Σ e^(logit − highest); the terms replace the logits when `keep`.
HWY_INLINE float SumOfExps(float* logits, int64_t vocab, float highest, bool keep) {
  const FloatV highest_v = hn::Set(FloatTag(), highest);
  return SumVectors(vocab, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV term = Exp(hn::Sub(access.Get(logits + i), highest_v));
    if (keep) access.Put(term, logits + i);
    return term;
  });
}

// The loss of one row (V), which becomes its gradient times `scale`.
double LossAndGradientOfRow(float* logits, int64_t vocab, int32_t target, float scale) {
  const float highest = MaxOf(logits, vocab);
  const double margin = static_cast<double>(highest) - static_cast<double>(logits[target]);
  const float sum = SumOfExps(logits, vocab, highest, true);
  const FloatV factor = hn::Set(FloatTag(), scale / sum);
  ForVectors(vocab, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Mul(access.Get(logits + i), factor), logits + i);
  });
  logits[target] -= scale;
  return std::log(static_cast<double>(sum)) + margin;
}

double LossOfRow(const float* logits, int64_t vocab, int32_t target) {
  const float highest = MaxOf(logits, vocab);
  const double margin = static_cast<double>(highest) - static_cast<double>(logits[target]);
  // Not written to without `keep`.
  const float sum = SumOfExps(const_cast<float*>(logits), vocab, highest, false);
  return std::log(static_cast<double>(sum)) + margin;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(LossAndGradientOfRow);
HWY_EXPORT(LossOfRow);

// Floats a tile: a large vocabulary makes a tile of few rows.
constexpr int64_t kTileFloats = 1 << 14;

int64_t RowsPerTile(int64_t vocab) { return std::max<int64_t>(1, kTileFloats / vocab); }

// A row's loss takes as much as so many floats.
constexpr int64_t kLossFloats = sizeof(double) / sizeof(float);

}  // namespace

double CpuOps::CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                                    int64_t rows, int64_t vocab) {
  auto* const losses = reinterpret_cast<double*>(Shared(rows * kLossFloats));
  std::fill(losses, losses + rows, 0.0);
  ForRanges(rows, RowsPerTile(vocab), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* row_logits = logits + row * vocab;
      if (targets[row] < 0) {
        std::fill(row_logits, row_logits + vocab, 0.0f);
      } else {
        losses[row] =
            HWY_DYNAMIC_DISPATCH(LossAndGradientOfRow)(row_logits, vocab, targets[row], scale);
      }
    }
  });
  return std::accumulate(losses, losses + rows, 0.0);
}

double CpuOps::CrossEntropy(const float* logits, const int32_t* targets, int64_t rows,
                            int64_t vocab) {
  auto* const losses = reinterpret_cast<double*>(Shared(rows * kLossFloats));
  std::fill(losses, losses + rows, 0.0);
  ForRanges(rows, RowsPerTile(vocab), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (targets[row] < 0) continue;
      losses[row] = HWY_DYNAMIC_DISPATCH(LossOfRow)(logits + row * vocab, vocab, targets[row]);
    }
  });
  return std::accumulate(losses, losses + rows, 0.0);
}

}  // namespace sherd
#endif
