#include <algorithm>
#include <memory>

#include "bench/kernel_cases.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/memory.h"
#include "kernels/thread_pool.h"

// As wide vectors as the machine has, like the kernels'.
#define SHERD_ANY_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))

namespace sherd {
namespace {

constexpr int64_t kRange = 1 << 15;

// State of an update, where a job keeps it: in buffers of the meter.
struct State {
  State(int64_t elements, bool half)
      : master(meter, Pool::kOptimizer, elements * 4),
        m(meter, Pool::kOptimizer, elements * 4),
        v(meter, Pool::kOptimizer, elements * 4),
        grad(meter, Pool::kGrads, elements * (half ? 2 : 4)),
        param(meter, Pool::kParams, half ? elements * 2 : 0) {
    // Untouched memory would be one page of zeros.
    for (const Buffer* buffer : {&master, &m, &v, &grad, &param}) {
      std::fill(buffer->data(), buffer->data() + buffer->bytes(), std::byte{0x3c});
    }
  }
  MemoryMeter meter;
  Buffer master, m, v, grad, param;
};

// Reads and writes what an update with fp32 gradients does.
SHERD_ANY_VECTORS void TouchFloats(float* master, float* m, float* v, const float* grad,
                                   int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    master[i] += grad[i];
    m[i] += 1.0f;
    v[i] += 1.0f;
  }
}

// The same with gradients and parameters of 2 bytes.
SHERD_ANY_VECTORS void TouchHalves(float* master, float* m, float* v, const uint16_t* grad,
                                   uint16_t* param, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    master[i] += 1.0f;
    m[i] += 1.0f;
    v[i] += 1.0f;
    param[i] = grad[i];
  }
}

}  // namespace

KernelCase AdamWCase(const KernelOptions& options) {
  const int64_t elements = options.elements;
  const bool half = options.half;
  const auto state = std::make_shared<State>(elements, half);
  const std::shared_ptr<Ops> ops = MakeCpuOps(options.threads);
  const auto update = [=] {
    const AdamWParams params{.lr = 1e-4, .step = 10, .grad_scale = 0.5f};
    float* master = state->master.as<float>();
    void* const stored = half ? static_cast<void*>(state->param.data()) : master;
    const DType type = half ? DType::kBF16 : DType::kF32;
    const AdamWState kept{master, state->m.as<float>(), state->v.as<float>()};
    ops->AdamW({stored, type, false}, kept, kept, state->grad.data(), type, params, elements);
  };
  return {{{"elements", static_cast<double>(elements)}}, [=] { return Timed(update); }};
}

KernelCase AdamWMemoryLimitCase(const KernelOptions& options) {
  const int64_t elements = options.elements;
  const bool half = options.half;
  const auto state = std::make_shared<State>(elements, half);
  const auto pool = std::make_shared<ThreadPool>(options.threads);
  const auto touch = [=] {
    pool->ParallelFor((elements + kRange - 1) / kRange, [&](int64_t index, int) {
      const int64_t at = index * kRange;
      const int64_t count = std::min(kRange, elements - at);
      float* master = state->master.as<float>() + at;
      float* m = state->m.as<float>() + at;
      float* v = state->v.as<float>() + at;
      if (half) {
        TouchHalves(master, m, v, state->grad.as<uint16_t>() + at, state->param.as<uint16_t>() + at,
                    count);
      } else {
        TouchFloats(master, m, v, state->grad.as<float>() + at, count);
      }
    });
  };
  return {{{"elements", static_cast<double>(elements)}}, [=] { return Timed(touch); }};
}

}  // namespace sherd
