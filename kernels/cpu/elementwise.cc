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

HWY_INLINE FloatV Logistic(FloatV x) {
  const FloatV one = hn::Set(FloatTag(), 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

HWY_INLINE FloatV GateArgument(FloatV x, FloatV x_squared) {
  const FloatTag d;
  const FloatV cubic = hn::MulAdd(hn::Set(d, kCubic), x_squared, hn::Set(d, 1.0f));
  return hn::Mul(hn::Mul(hn::Set(d, kTwiceRootTwoOverPi), x), cubic);
}

void Gelu(const float* x, float* y, int64_t elements) {
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV value = access.Get(x + i);
    access.Put(hn::Mul(value, Logistic(GateArgument(value, hn::Mul(value, value)))), y + i);
  });
}

// gelu'(x) = s + x s (1 − s) w', where s is the logistic function of w = GateArgument(x).
void GeluGradient(const float* dy, const float* x, float* dx, int64_t elements) {
  const FloatTag d;
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    // Beyond ±16 the derivative is exactly 0 or 1; without the limit 0 · inf would appear. A NaN
    // passes, being the second operand.
    const FloatV value = hn::Max(hn::Set(d, -16.0f), hn::Min(hn::Set(d, 16.0f), access.Get(x + i)));
    const FloatV squared = hn::Mul(value, value);
    const FloatV one = hn::Set(d, 1.0f);
    const FloatV gate = Logistic(GateArgument(value, squared));
    const FloatV slope =
        hn::Mul(hn::Set(d, kTwiceRootTwoOverPi), hn::MulAdd(hn::Set(d, 3 * kCubic), squared, one));
    const FloatV bend = hn::Mul(hn::Mul(value, gate), hn::Mul(hn::Sub(one, gate), slope));
    access.Put(hn::Mul(access.Get(dy + i), hn::Add(gate, bend)), dx + i);
  });
}

void Sum(const float* a, const float* b, float* y, int64_t elements) {
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Add(access.Get(a + i), access.Get(b + i)), y + i);
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
HWY_EXPORT(Sum);

constexpr int64_t kRange = 1 << 14;

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

void CpuOps::Add(const float* a, const float* b, float* y, int64_t elements) {
  ForRanges(elements, kRange, [=](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Sum)(a + begin, b + begin, y + begin, end - begin);
  });
}

}  // namespace sherd
#endif
