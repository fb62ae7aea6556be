#include <memory>

#include "bench/kernel_cases.h"
#include "kernels/cpu/cpu_ops.h"

namespace sherd {

KernelCase AttentionCase(const KernelOptions& options) {
  struct Tensors {
    std::vector<float> qkv, out, dout, lse, dqkv;
  };
  const int64_t heads = options.hidden / 64;
  const AttentionShape shape{options.batch, options.tokens, heads, heads, 64};
  const int64_t elements = options.batch * options.tokens * options.hidden;
  const auto tensors = std::make_shared<Tensors>();
  tensors->qkv = NormalValues(3 * elements);
  tensors->dout = NormalValues(elements);
  tensors->out.resize(tensors->dout.size());
  tensors->lse.resize(tensors->dout.size() / 64);
  tensors->dqkv.resize(tensors->qkv.size());
  const std::shared_ptr<Ops> ops = MakeCpuOps(options.threads);
  const auto work = [=] {
    Tensors& t = *tensors;
    ops->AttentionForward(t.qkv.data(), t.out.data(), t.lse.data(), shape);
    ops->AttentionBackward(t.dout.data(), t.qkv.data(), t.out.data(), t.lse.data(), t.dqkv.data(),
                           shape);
  };
  // The causal half of two products forward and four backward.
  const double flops = 6.0 * static_cast<double>(elements * options.tokens);
  return {{{"flops", flops}}, [=] { return Timed(work); }};
}

}  // namespace sherd
