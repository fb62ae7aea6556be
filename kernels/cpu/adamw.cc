#include <cmath>

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

// `param` is nullptr when the master is the parameter.
template <typename Grad>
HWY_INLINE void Update(BF16* param, float* master, float* m, float* v, const Grad* grad,
                       const AdamWConstants& c, int64_t elements) {
  const FloatTag d;
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    const FloatV g = hn::Mul(access.Get(grad + i), hn::Set(d, c.grad_scale));
    const FloatV m_new = hn::MulAdd(hn::Set(d, c.beta1), access.Get(m + i),
                                    hn::Mul(hn::Set(d, c.one_minus_beta1), g));
    const FloatV v_new = hn::MulAdd(hn::Set(d, c.beta2), access.Get(v + i),
                                    hn::Mul(hn::Set(d, c.one_minus_beta2), hn::Mul(g, g)));
    const FloatV root =
        hn::MulAdd(hn::Sqrt(v_new), hn::Set(d, c.inverse_root_bias2), hn::Set(d, c.eps));
    const FloatV update = hn::Div(hn::Mul(hn::Set(d, c.step_size), m_new), root);
    const FloatV master_new = hn::MulSub(hn::Set(d, c.decay), access.Get(master + i), update);
    access.Put(m_new, m + i);
    access.Put(v_new, v + i);
    access.Put(master_new, master + i);
    if (param != nullptr) access.Put(master_new, param + i);
  });
}

void UpdateFromFloats(BF16* param, float* master, float* m, float* v, const void* grad,
                      const AdamWConstants& c, int64_t elements) {
  Update(param, master, m, v, static_cast<const float*>(grad), c, elements);
}
void UpdateFromHalves(BF16* param, float* master, float* m, float* v, const void* grad,
                      const AdamWConstants& c, int64_t elements) {
  Update(param, master, m, v, static_cast<const BF16*>(grad), c, elements);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(UpdateFromFloats);
HWY_EXPORT(UpdateFromHalves);

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

void CpuOps::AdamW(GradOut param, float* master, float* m, float* v, const void* grad,
                   DType grad_dtype, const AdamWParams& params, int64_t elements) {
  const AdamWConstants constants = Constants(params);
  BF16* rounded = param.data == master ? nullptr : static_cast<BF16*>(param.data);
  const auto* grad_bytes = static_cast<const std::byte*>(grad);
  ForRanges(elements, kRange, [&](int64_t begin, int64_t end) {
    const auto update = grad_dtype == DType::kF32 ? HWY_DYNAMIC_DISPATCH(UpdateFromFloats)
                                                  : HWY_DYNAMIC_DISPATCH(UpdateFromHalves);
    update(rounded == nullptr ? nullptr : rounded + begin, master + begin, m + begin, v + begin,
           grad_bytes + begin * SizeOf(grad_dtype), constants, end - begin);
  });
}

}  // namespace sherd
#endif
