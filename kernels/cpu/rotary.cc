#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/targets.h"
#include "kernels/cpu/tiling.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// Turns `heads` heads (heads, 2, half) of one token in place; `back`: by the negative angles.
void TurnHeads(float* x, const float* cosines, const float* sines, int64_t heads, int64_t half,
               bool back) {
  for (int64_t head = 0; head < heads; ++head, x += 2 * half) {
    float* second = x + half;
    ForVectors(half, [=](auto access, int64_t i) HWY_ATTR {
      const FloatV a = access.Get(x + i);
      const FloatV b = access.Get(second + i);
      const FloatV cosine = access.Get(cosines + i);
      const FloatV sine = back ? hn::Neg(access.Get(sines + i)) : access.Get(sines + i);
      access.Put(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), x + i);
      access.Put(hn::MulAdd(a, sine, hn::Mul(b, cosine)), second + i);
    });
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(TurnHeads);

constexpr int64_t kTokens = 16;

// Radians a token of pair `index`.
double Frequency(const RotaryParams& params, int64_t index, int64_t head_size) {
  const double plain =
      std::pow(params.theta, -2.0 * static_cast<double>(index) / static_cast<double>(head_size));
  if (params.factor == 1) return plain;
  // How many waves fit into the context that the model was first trained with.
  const double waves = static_cast<double>(params.original_context) * plain / (2 * std::acos(-1.0));
  const double share = std::clamp(
      (waves - params.low_freq_factor) / (params.high_freq_factor - params.low_freq_factor), 0.0,
      1.0);
  return share * plain + (1 - share) * plain / params.factor;
}

// Queries and keys, which lie one behind the other.
int64_t TurnedHeads(const AttentionShape& shape) { return shape.heads + shape.kv_heads; }

}  // namespace

void CpuOps::RotaryTable(const RotaryParams& params, float* table, int64_t tokens,
                         int64_t head_size) {
  const int64_t half = head_size / 2;
  ForRanges(tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = Frequency(params, i, head_size);
      for (int64_t t = begin; t < end; ++t) {
        const double angle = static_cast<double>(t) * frequency;
        table[t * head_size + i] = static_cast<float>(std::cos(angle));
        table[t * head_size + half + i] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void CpuOps::RotaryForward(float* qkv, const float* table, const AttentionShape& shape) {
  Turn(qkv, table, shape, /*back=*/false);
}

void CpuOps::RotaryBackward(float* dqkv, const float* table, const AttentionShape& shape) {
  Turn(dqkv, table, shape, /*back=*/true);
}

void CpuOps::Turn(float* qkv, const float* table, const AttentionShape& shape, bool back) {
  const int64_t half = shape.head_size / 2;
  ForRanges(shape.batch * shape.tokens, kTokens, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* angles = table + row % shape.tokens * shape.head_size;
      HWY_DYNAMIC_DISPATCH(TurnHeads)
      (qkv + row * shape.qkv_channels(), angles, angles + half, TurnedHeads(shape), half, back);
    }
  });
}

}  // namespace sherd
#endif
