#include <algorithm>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// GELU's 0.5 (1 + tanh u) is the logistic function of 2u: one exp and no cancellation.
constexpr float kTwiceRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

// 2u = 2 √(2/π) (x + 0.044715 x³)
HWY_INLINE FloatV TwiceU(FloatV x, FloatV x_squared) {
  const FloatTag d;
  const FloatV cubic = hn::MulAdd(hn::Set(d, kCubic), x_squared, hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(hn::Set(d, kTwiceRootTwoOverPi), x), cubic);
}

void Gelu(const float* x, float* y, int64_t elements) {
  const FloatV one = hn::Set(FloatTag(), 1.0f);
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV value = access.Get(x + i);
    const FloatV falling = Exp(hn::Neg(TwiceU(value, hn::Mul(value, value))));
    access.Put(hn::Div(value, hn::Add(one, falling)), y + i);
  });
}

// gelu'(x) = s + x s (1 − s) (2u)', where s = 1 / (1 + e) and 1 − s = e s with e = exp(−2u).
void GeluGradient(const float* dy, const float* x, float* dx, int64_t elements) {
  const FloatTag d;
  const FloatV one = hn::Set(d, 1.0f);
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    // Beyond ±10 the derivative is 0 or 1 within 1e-34, and e would overflow.
    const FloatV value = Limited(access.Get(x + i), -10.0f, 10.0f);
    const FloatV squared = hn::Mul(value, value);
    const FloatV falling = Exp(hn::Neg(TwiceU(value, squared)));
    const FloatV gate = hn::Div(one, hn::Add(one, falling));
    const FloatV slope =
        hn::Mul(hn::Set(d, kTwiceRootTwoOverPi), hn::MulAdd(hn::Set(d, 3 * kCubic), squared, one));
    const FloatV bend = hn::Mul(hn::Mul(value, slope), hn::Mul(gate, hn::Mul(falling, gate)));
    access.Put(hn::Mul(access.Get(dy + i), hn::Add(gate, bend)), dx + i);
  });
}

// silu(gate) · up; the logistic function needs no care: e^−g overflows to infinity and gives −0.
void SwiGlu(const float* gate, const float* up, float* y, int64_t elements) {
  const FloatV one = hn::Set(FloatTag(), 1.0f);
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV value = access.Get(gate + i);
    const FloatV silu = hn::Div(value, hn::Add(one, Exp(hn::Neg(value))));
    access.Put(hn::Mul(silu, access.Get(up + i)), y + i);
  });
}

// silu'(g) = s + g s (1 − s), where s = 1 / (1 + e) and 1 − s = e s with e = exp(−g).
void SwiGluGradient(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                    int64_t elements) {
  const FloatV one = hn::Set(FloatTag(), 1.0f);
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV value = access.Get(gate + i);
    // Beyond ±80 the derivative is 0 or 1 within 1e-32, and e · s would be infinity · 0; so is
    // silu below −80.
    const FloatV limited = Limited(value, -80.0f, 80.0f);
    const FloatV falling = Exp(hn::Neg(limited));
    const FloatV logistic = hn::Div(one, hn::Add(one, falling));
    const FloatV bend = hn::Mul(hn::Mul(limited, logistic), hn::Mul(falling, logistic));
    const FloatV outer = access.Get(dy + i);
    const FloatV up_value = access.Get(up + i);
    access.Put(hn::Mul(hn::Mul(outer, up_value), hn::Add(logistic, bend)), dgate + i);
    const FloatV from_below = hn::IfThenElse(hn::Lt(value, limited), limited, value);
    access.Put(hn::Mul(outer, hn::Mul(from_below, logistic)), dup + i);
  });
}

// y = (x + bias) + residual over one row; `bias` may be null.
void ResidualRow(const float* x, const float* bias, const float* residual, float* y,
                 int64_t channels) {
  ForVectors(channels, [=](auto access, int64_t i) HWY_ATTR {
    FloatV value = access.Get(x + i);
    if (bias != nullptr) value = hn::Add(value, access.Get(bias + i));
    access.Put(hn::Add(value, access.Get(residual + i)), y + i);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(Gelu);
HWY_EXPORT(GeluGradient);
HWY_EXPORT(SwiGlu);
HWY_EXPORT(SwiGluGradient);
HWY_EXPORT(ResidualRow);

constexpr int64_t kRange = 1 << 14;

// Rows of `channels` that make about a range.
int64_t RowsInRange(int64_t channels) { return std::max<int64_t>(1, kRange / channels); }

}  // namespace

void CpuOps::GeluForward(const float* x, float* y, int64_t elements) {
  ForRanges(elements, kRange, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Gelu)(x + begin, y + begin, end - begin);
  });
}

void CpuOps::GeluBackward(const float* dy, const float* x, float* dx, int64_t elements) {
  ForRanges(elements, kRange, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(GeluGradient)(dy + begin, x + begin, dx + begin, end - begin);
  });
}

void CpuOps::SwiGluForward(const float* gate_up, float* y, int64_t rows, int64_t ffn) {
  ForRanges(rows, RowsInRange(ffn), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * ffn;
      HWY_DYNAMIC_DISPATCH(SwiGlu)(gate, gate + ffn, y + row * ffn, ffn);
    }
  });
}

void CpuOps::SwiGluBackward(const float* dy, const float* gate_up, float* dgate_up, int64_t rows,
                            int64_t ffn) {
  ForRanges(rows, RowsInRange(ffn), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * ffn;
      float* dgate = dgate_up + row * 2 * ffn;
      HWY_DYNAMIC_DISPATCH(SwiGluGradient)
      (dy + row * ffn, gate, gate + ffn, dgate, dgate + ffn, ffn);
    }
  });
}

void CpuOps::ResidualForward(const float* x, ConstParam bias, const float* residual, float* y,
                             int64_t rows, int64_t channels) {
  const float* bias_floats =
      bias.data == nullptr ? nullptr : Widened(bias, channels, Shared(channels));
  ForRanges(rows, RowsInRange(channels), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * channels;
      HWY_DYNAMIC_DISPATCH(ResidualRow)(x + at, bias_floats, residual + at, y + at, channels);
    }
  });
}

}  // namespace sherd
#endif
