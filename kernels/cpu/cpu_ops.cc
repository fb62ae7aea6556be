#include "kernels/cpu/cpu_ops.h"

#include <algorithm>

#include "hwy/targets.h"
#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/fold.h"
#include "oneapi/dnnl/dnnl.h"

namespace sherd {

namespace {

const char* VectorTarget() {
  const int64_t supported = hwy::SupportedTargets();
  if ((supported & HWY_AVX3) != 0) return "avx512";
  if ((supported & HWY_AVX2) != 0) return "avx2";
  return "portable";
}

}  // namespace

std::unique_ptr<Ops> MakeCpuOps(int threads) { return std::make_unique<CpuOps>(threads); }

CpuOps::CpuOps(int threads) : pool_(threads), scratch_(static_cast<size_t>(threads)) {}

void CpuOps::ForRanges(int64_t elements, int64_t range,
                       const std::function<void(int64_t begin, int64_t end)>& body) {
  pool_.ParallelFor((elements + range - 1) / range, [&](int64_t index, int) {
    body(index * range, std::min(elements, (index + 1) * range));
  });
}

const float* CpuOps::Widened(ConstParam param, int64_t elements, Scratch& scratch) {
  if (param.dtype == DType::kF32) return static_cast<const float*>(param.data);
  float* widened = scratch.Floats(elements);
  CastSerial(param.data, param.dtype, widened, DType::kF32, elements);
  return widened;
}

std::string CpuNumericsFingerprint() {
  const dnnl_version_t* dnnl = dnnl_version();
  return "sherd " SHERD_VERSION "; " + std::string(VectorTarget()) + "; onednn " +
         std::to_string(dnnl->major) + "." + std::to_string(dnnl->minor) + "." +
         std::to_string(dnnl->patch) + " isa " +
         std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa())) + "; " __VERSION__;
}

}  // namespace sherd
