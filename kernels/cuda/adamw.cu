// AdamW in one pass over parameter, master, moments and gradient.

#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

constexpr int kWidth = 8;

// What of AdamWParams is the same for every element, worked out in double.
struct AdamWConstants {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size;           // lr / (1 − β1^step)
  float inverse_root_bias2;  // 1 / √(1 − β2^step)
  float eps;
  float decay;  // 1 − lr · weight_decay
};

AdamWConstants Constants(const AdamWParams& params) {
  const double step = static_cast<double>(params.step);
  const double bias1 = 1 - std::pow(params.beta1, step);
  const double bias2 = 1 - std::pow(params.beta2, step);
  return {.grad_scale = static_cast<float>(params.grad_scale),
          .beta1 = static_cast<float>(params.beta1),
          .one_minus_beta1 = static_cast<float>(1 - params.beta1),
          .beta2 = static_cast<float>(params.beta2),
          .one_minus_beta2 = static_cast<float>(1 - params.beta2),
          .step_size = static_cast<float>(params.lr / bias1),
          .inverse_root_bias2 = static_cast<float>(1 / std::sqrt(bias2)),
          .eps = static_cast<float>(params.eps),
          .decay = static_cast<float>(1 - params.lr * params.weight_decay)};
}

// `param` is null when the new master is the parameter. `whole`: all arrays are aligned.
template <typename Param, typename Grad>
__global__ void __launch_bounds__(kElementThreads)
    AdamWKernel(Param* param, AdamWState from, AdamWState to, const Grad* grad, AdamWConstants c,
                int64_t elements, bool whole) {
  const int64_t at = PackOfThread<kWidth>();
  const int64_t left = elements - at;
  if (left <= 0) return;
  Pack<kWidth> g = LoadPack<kWidth>(grad + at, left, whole);
  Pack<kWidth> m = LoadPack<kWidth>(from.m + at, left, whole);
  Pack<kWidth> v = LoadPack<kWidth>(from.v + at, left, whole);
  Pack<kWidth> master = LoadPack<kWidth>(from.master + at, left, whole);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float scaled = g.v[i] * c.grad_scale;
    m.v[i] = fmaf(c.beta1, m.v[i], c.one_minus_beta1 * scaled);
    v.v[i] = fmaf(c.beta2, v.v[i], c.one_minus_beta2 * (scaled * scaled));
    const float root = fmaf(sqrtf(v.v[i]), c.inverse_root_bias2, c.eps);
    master.v[i] = fmaf(c.decay, master.v[i], -(c.step_size * m.v[i] / root));
  }
  StorePack(m, to.m + at, left, whole);
  StorePack(v, to.v + at, left, whole);
  StorePack(master, to.master + at, left, whole);
  if (param != nullptr) StorePack(master, param + at, left, whole);
}

}  // namespace

void CudaKernels::AdamW(GradOut param, const AdamWState& from, const AdamWState& to,
                        const void* grad, DType grad_dtype, const AdamWParams& params,
                        int64_t elements) {
  void* const stored = param.data == to.master ? nullptr : param.data;
  const bool whole = AllAligned(stored, from.master, from.m, from.v, to.master, to.m, to.v, grad);
  ForType(param.dtype, [&](auto param_type) {
    ForType(grad_dtype, [&](auto grad_type) {
      using Param = decltype(param_type);
      using Grad = decltype(grad_type);
      Run(SIMT_KERNEL(AdamWKernel<Param, Grad>), BlocksOfPacks(elements, kWidth), kElementThreads,
          0, static_cast<Param*>(stored), from, to, static_cast<const Grad*>(grad),
          Constants(params), elements, whole);
    });
  });
}

}  // namespace sherd
