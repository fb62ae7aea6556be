#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tiling.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/exp-inl.h"

#ifndef SHERD_KERNELS_CPU_LOSS_CC_
#define SHERD_KERNELS_CPU_LOSS_CC_
namespace sherd {
inline constexpr LogitStatistics kNoLogits = {-std::numeric_limits<float>::infinity(), 0, 0};

// What a row's gradient is made of beside its softmax. Without options 0 is subtracted everywhere,
// and multiplied by 1, which changes no bit.
struct RowObjective {
  RowObjective(float scale, const LossOptions& options, int64_t vocabulary)
      : at_target(static_cast<float>(scale * (1 - options.label_smoothing))),
        everywhere(
            static_cast<float>(scale * options.label_smoothing / static_cast<double>(vocabulary))),
        twice_z_loss(2 * options.z_loss) {}

  // On the softmax of a row whose Σ e^(logit − highest) is `sum`.
  double Factor(double sum, double highest) const {
    return twice_z_loss == 0 ? 1 : 1 + twice_z_loss * (std::log(sum) + highest);
  }

  // Subtracted at the target, and at every entry.
  float at_target, everywhere;
  double twice_z_loss;
};
}  // namespace sherd
#endif

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

// values · factor − less.
void ScaleRow(float* values, int64_t count, float factor, float less) {
  const FloatV factor_v = hn::Set(FloatTag(), factor);
  const FloatV less_v = hn::Set(FloatTag(), less);
  ForVectors(count, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Sub(hn::Mul(access.Get(values + i), factor_v), less_v), values + i);
  });
}

// The loss of one row (V), which becomes its gradient times `scale`.
double LossAndGradientOfRow(float* logits, int64_t vocab, int32_t target, float scale,
                            const RowObjective& objective) {
  const float highest = MaxOf(logits, vocab);
  const double margin = static_cast<double>(highest) - static_cast<double>(logits[target]);
  const float sum = SumOfExps(logits, vocab, highest, true);
  const auto factor = static_cast<float>(objective.Factor(sum, highest));
  ScaleRow(logits, vocab, scale / sum * factor, objective.everywhere);
  logits[target] -= objective.at_target;
  return std::log(static_cast<double>(sum)) + margin;
}

double LossOfRow(const float* logits, int64_t vocab, int32_t target) {
  const float highest = MaxOf(logits, vocab);
  const double margin = static_cast<double>(highest) - static_cast<double>(logits[target]);
  // Not written to without `keep`.
  const float sum = SumOfExps(const_cast<float*>(logits), vocab, highest, false);
  return std::log(static_cast<double>(sum)) + margin;
}

// Of one row's logits (count), which become e^(logit − highest). `target` is one of them or −1.
LogitStatistics StatisticsOfRow(float* logits, int64_t count, int64_t target) {
  if (count == 0) return kNoLogits;
  LogitStatistics row = kNoLogits;
  row.highest = MaxOf(logits, count);
  if (target >= 0) row.target = logits[target];
  // A member's logits may all be −infinity, whose differences are not numbers.
  row.sum = SumOfExps(logits, count, std::isinf(row.highest) ? 0.0f : row.highest, true);
  return row;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(ScaleRow);
HWY_EXPORT(LossAndGradientOfRow);
HWY_EXPORT(LossOfRow);
HWY_EXPORT(StatisticsOfRow);

// Floats a tile: a large vocabulary makes a tile of few rows.
constexpr int64_t kTileFloats = 1 << 14;

int64_t RowsPerTile(int64_t columns) { return std::max<int64_t>(1, kTileFloats / columns); }

// A row's loss takes as much as so many floats.
constexpr int64_t kLossFloats = sizeof(double) / sizeof(float);

// The statistics of one row from those of its parts, `stride` apart.
LogitStatistics Join(const LogitStatistics* parts, int count, int64_t stride) {
  LogitStatistics whole = kNoLogits;
  for (int part = 0; part < count; ++part) {
    whole.highest = std::max(whole.highest, parts[part * stride].highest);
    whole.target += parts[part * stride].target;
  }
  double sum = 0;
  for (int part = 0; part < count; ++part) {
    const LogitStatistics& row = parts[part * stride];
    // Of a part without logits the sum is 0, and its highest is no number to subtract.
    if (row.sum != 0) sum += row.sum * std::exp(double{row.highest} - double{whole.highest});
  }
  whole.sum = static_cast<float>(sum);
  return whole;
}

}  // namespace

void CpuOps::CrossEntropyBackward(float* logits, const int32_t* targets, float scale,
                                  const LossOptions& options, int64_t rows, int64_t vocab,
                                  double& loss) {
  const RowObjective objective(scale, options, vocab);
  auto* const losses = reinterpret_cast<double*>(Shared(rows * kLossFloats));
  std::fill(losses, losses + rows, 0.0);
  ForRanges(rows, RowsPerTile(vocab), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* row_logits = logits + row * vocab;
      if (targets[row] < 0) {
        std::fill(row_logits, row_logits + vocab, 0.0f);
      } else {
        losses[row] = HWY_DYNAMIC_DISPATCH(LossAndGradientOfRow)(row_logits, vocab, targets[row],
                                                                 scale, objective);
      }
    }
  });
  loss = std::accumulate(losses, losses + rows, loss);
}

void CpuOps::CrossEntropy(const float* logits, const int32_t* targets, int64_t rows, int64_t vocab,
                          double& loss) {
  auto* const losses = reinterpret_cast<double*>(Shared(rows * kLossFloats));
  std::fill(losses, losses + rows, 0.0);
  ForRanges(rows, RowsPerTile(vocab), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (targets[row] < 0) continue;
      losses[row] = HWY_DYNAMIC_DISPATCH(LossOfRow)(logits + row * vocab, vocab, targets[row]);
    }
  });
  loss = std::accumulate(losses, losses + rows, loss);
}

void CpuOps::VocabularyStatistics(float* logits, const int32_t* targets, const VocabularyPart& part,
                                  LogitStatistics* statistics, int64_t rows) {
  ForRanges(rows, RowsPerTile(part.columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t target = part.Has(targets[row]) ? targets[row] - part.first : -1;
      statistics[row] = targets[row] < 0 ? kNoLogits
                                         : HWY_DYNAMIC_DISPATCH(StatisticsOfRow)(
                                               logits + row * part.columns, part.count, target);
    }
  });
}

void CpuOps::JoinStatistics(const LogitStatistics* of_members, int members, const int32_t* targets,
                            LogitStatistics* joined, int64_t rows, double& loss) {
  for (int64_t row = 0; row < rows; ++row) {
    joined[row] = Join(of_members + row, members, rows);
    if (targets[row] < 0) continue;
    const double margin = double{joined[row].highest} - double{joined[row].target};
    loss += std::log(double{joined[row].sum}) + margin;
  }
}

void CpuOps::VocabularyGradient(float* logits, const int32_t* targets, const VocabularyPart& part,
                                const LogitStatistics* own, const LogitStatistics* joined,
                                float scale, const LossOptions& options, int64_t rows) {
  const RowObjective objective(scale, options, part.vocabulary);
  ForRanges(rows, RowsPerTile(part.columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const gradient = logits + row * part.columns;
      const int64_t counted = targets[row] < 0 ? 0 : part.count;
      const double share = std::exp(double{own[row].highest} - double{joined[row].highest});
      const double factor = objective.Factor(joined[row].sum, joined[row].highest);
      HWY_DYNAMIC_DISPATCH(ScaleRow)
      (gradient, counted, static_cast<float>(double{scale} / joined[row].sum * share * factor),
       objective.everywhere);
      std::fill(gradient + counted, gradient + part.columns, 0.0f);
      if (part.Has(targets[row])) gradient[targets[row] - part.first] -= objective.at_target;
    }
  });
}

}  // namespace sherd
#endif
