#include <cmath>

#include "hwy/cache_control.h"
#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

#ifndef SHERD_KERNELS_CPU_ADAMW_CC_
#define SHERD_KERNELS_CPU_ADAMW_CC_
namespace sherd {
// What of AdamWParams is the same for every element, worked out in double.
struct AdamWConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;           // lr / (1 − β1^step)
  float inverse_root_bias2;  // 1 / √(1 − β2^step)
  float eps;
  float decay;  // 1 − lr · weight_decay
};
}  // namespace sherd
#endif

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// How far ahead of its use memory is asked for, in elements: the processor follows so many streams
// at once late by itself.
constexpr int64_t kAhead = 128;

// `param` is nullptr when the new master is the parameter.
template <typename Param, typename Grad>
HWY_INLINE void Update(Param* param, const AdamWState& from, const AdamWState& to, const Grad* grad,
                       const AdamWConstants& c, int64_t elements) {
  const FloatTag d;
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    hwy::Prefetch(from.m + i + kAhead);
    hwy::Prefetch(from.v + i + kAhead);
    hwy::Prefetch(from.master + i + kAhead);
    hwy::Prefetch(grad + i + kAhead);
    const FloatV g = hn::Mul(access.Get(grad + i), hn::Set(d, c.grad_scale));
    const FloatV m_new = hn::MulAdd(hn::Set(d, c.beta1), access.Get(from.m + i),
                                    hn::Mul(hn::Set(d, c.one_minus_beta1), g));
    const FloatV v_new = hn::MulAdd(hn::Set(d, c.beta2), access.Get(from.v + i),
                                    hn::Mul(hn::Set(d, c.one_minus_beta2), hn::Mul(g, g)));
    const FloatV root =
        hn::MulAdd(hn::Sqrt(v_new), hn::Set(d, c.inverse_root_bias2), hn::Set(d, c.eps));
    const FloatV update = hn::Div(hn::Mul(hn::Set(d, c.step_size), m_new), root);
    const FloatV master_new = hn::MulSub(hn::Set(d, c.decay), access.Get(from.master + i), update);
    access.Put(m_new, to.m + i);
    access.Put(v_new, to.v + i);
    access.Put(master_new, to.master + i);
    if (param != nullptr) access.Put(master_new, param + i);
  });
}

#define SHERD_ADAMW(Name, Param, Grad)                                                         \
  void Name(void* param, const AdamWState& from, const AdamWState& to, const void* grad,       \
            const AdamWConstants& c, int64_t elements) {                                       \
    Update(static_cast<Param*>(param), from, to, static_cast<const Grad*>(grad), c, elements); \
  }
SHERD_ADAMW(FloatsFromFloats, float, float)
SHERD_ADAMW(FloatsFromHalves, float, BF16)
SHERD_ADAMW(HalvesFromFloats, BF16, float)
SHERD_ADAMW(HalvesFromHalves, BF16, BF16)
#undef SHERD_ADAMW

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(FloatsFromFloats);
HWY_EXPORT(FloatsFromHalves);
HWY_EXPORT(HalvesFromFloats);
HWY_EXPORT(HalvesFromHalves);

constexpr int64_t kRange = 1 << 15;

AdamWConstants Constants(const AdamWParams& params) {
  const double step = static_cast<double>(params.step);
  const double bias1 = 1 - std::pow(params.beta1, step);
  const double bias2 = 1 - std::pow(params.beta2, step);
  return {.grad_scale = params.grad_scale,
          .beta1 = static_cast<float>(params.beta1),
          .one_minus_beta1 = static_cast<float>(1 - params.beta1),
          .beta2 = static_cast<float>(params.beta2),
          .one_minus_beta2 = static_cast<float>(1 - params.beta2),
          .step_size = static_cast<float>(params.lr / bias1),
          .inverse_root_bias2 = static_cast<float>(1 / std::sqrt(bias2)),
          .eps = static_cast<float>(params.eps),
          .decay = static_cast<float>(1 - params.lr * params.weight_decay)};
}

}  // namespace

void CpuOps::AdamW(GradOut param, const AdamWState& from, const AdamWState& to, const void* grad,
                   DType grad_dtype, const AdamWParams& params, int64_t elements) {
  const AdamWConstants constants = Constants(params);
  auto* const stored =
      param.data == to.master ? nullptr : static_cast<std::byte*>(static_cast<void*>(param.data));
  const auto* grad_bytes = static_cast<const std::byte*>(grad);
  const bool floats = param.dtype == DType::kF32;
  const bool from_floats = grad_dtype == DType::kF32;
  ForRanges(elements, kRange, [&](int64_t begin, int64_t end) {
    const auto update = floats        ? from_floats ? HWY_DYNAMIC_DISPATCH(FloatsFromFloats)
                                                    : HWY_DYNAMIC_DISPATCH(FloatsFromHalves)
                               : from_floats ? HWY_DYNAMIC_DISPATCH(HalvesFromFloats)
                                      : HWY_DYNAMIC_DISPATCH(HalvesFromHalves);
    update(stored == nullptr ? nullptr : stored + begin * SizeOf(param.dtype), from.From(begin),
           to.From(begin), grad_bytes + begin * SizeOf(grad_dtype), constants, end - begin);
  });
}

}  // namespace sherd
#endif
