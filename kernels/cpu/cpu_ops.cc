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

std::unique_ptr<Ops> MakeCpuOps(int threads, MemoryMeter& meter, const CpuScratchSizes& reserved) {
  auto ops = std::make_unique<CpuOps>(threads, &meter);
  ops->Reserve(reserved);
  return ops;
}

std::unique_ptr<Ops> MakeCpuOps(int threads) { return std::make_unique<CpuOps>(threads, nullptr); }

CpuOps::CpuOps(int threads, MemoryMeter* meter)
    : own_meter_(meter == nullptr ? std::make_unique<MemoryMeter>() : nullptr),
      pool_(threads),
      shared_(meter == nullptr ? *own_meter_ : *meter) {
  for (int thread = 0; thread < threads; ++thread) {
    scratch_.emplace_back(meter == nullptr ? *own_meter_ : *meter);
  }
}

void CpuOps::Reserve(const CpuScratchSizes& sizes) {
  ReserveOnEachThread(&ThreadScratch::panel, sizes.panel);
  ReserveOnEachThread(&ThreadScratch::tile, sizes.tile);
  ReserveOnEachThread(&ThreadScratch::values, sizes.values);
  shared_.Reserve(sizes.shared);
}

void CpuOps::ReserveOnEachThread(Scratch ThreadScratch::*scratch, int64_t count) {
  for (ThreadScratch& each : scratch_) (each.*scratch).Reserve(count);
}

float* CpuOps::Shared(int64_t count) {
  shared_.Reserve(count);
  return shared_.Floats(count);
}

void CpuOps::ForRanges(int64_t elements, int64_t range,
                       const std::function<void(int64_t begin, int64_t end)>& body) {
  pool_.ParallelFor((elements + range - 1) / range, [&](int64_t index, int) {
    body(index * range, std::min(elements, (index + 1) * range));
  });
}

const float* CpuOps::Widened(ConstParam param, int64_t elements, float* room) {
  if (param.dtype == DType::kF32) return static_cast<const float*>(param.data);
  CastSerial(param.data, param.dtype, room, DType::kF32, elements);
  return room;
}

std::string CpuNumericsFingerprint() {
  const dnnl_version_t* dnnl = dnnl_version();
  return "sherd " SHERD_VERSION "; " + std::string(VectorTarget()) + "; onednn " +
         std::to_string(dnnl->major) + "." + std::to_string(dnnl->minor) + "." +
         std::to_string(dnnl->patch) + " isa " +
         std::to_string(static_cast<int>(dnnl_get_effective_cpu_isa())) + "; " __VERSION__;
}

}  // namespace sherd
