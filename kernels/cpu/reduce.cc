#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/fold.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/tiling.h"

namespace sherd {
namespace {

constexpr int64_t kRange = 1 << 16;

}  // namespace

void CpuOps::AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) {
  std::vector<ExactSum> by_thread(static_cast<size_t>(pool_.threads()));
  const auto* bytes = static_cast<const std::byte*>(x);
  pool_.ParallelFor(CeilDiv(elements, kRange), [&](int64_t index, int thread) {
    const int64_t begin = index * kRange;
    AddSquaresSerial(bytes + begin * SizeOf(dtype), dtype, std::min(kRange, elements - begin),
                     by_thread[static_cast<size_t>(thread)]);
  });
  for (const ExactSum& partial : by_thread) sum.Add(partial);
}

void CpuOps::AddRounded(void* dst, const void* src, DType dtype, int64_t elements) {
  auto* dst_bytes = static_cast<std::byte*>(dst);
  const auto* src_bytes = static_cast<const std::byte*>(src);
  ForRanges(elements, kRange, [&](int64_t begin, int64_t end) {
    const int64_t offset = begin * SizeOf(dtype);
    AddRoundedSerial(dst_bytes + offset, src_bytes + offset, dtype, end - begin);
  });
}

void CpuOps::Cast(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t elements) {
  auto* dst_bytes = static_cast<std::byte*>(dst);
  const auto* src_bytes = static_cast<const std::byte*>(src);
  ForRanges(elements, kRange, [&](int64_t begin, int64_t end) {
    CastSerial(src_bytes + begin * SizeOf(src_dtype), src_dtype,
               dst_bytes + begin * SizeOf(dst_dtype), dst_dtype, end - begin);
  });
}

}  // namespace sherd
