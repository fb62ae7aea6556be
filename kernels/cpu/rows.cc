#include "kernels/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/fold.h"
#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

void AddFloatRow(float* y, const float* x, int64_t elements) {
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Add(access.Get(y + i), access.Get(x + i)), y + i);
  });
}

void AddRoundedFloats(BF16* y, const float* x, int64_t elements) {
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Add(access.Get(y + i), access.Get(x + i)), y + i);
  });
}

// Blocks of 64 rows are summed one by one, then added up: less rounding than one long chain.
void SumColumnVectors(const float* x, int64_t stride, int64_t rows, int64_t columns, float* sums) {
  constexpr int64_t kBlock = 64;
  const FloatTag d;
  ForVectors(columns, [=](auto access, int64_t i) HWY_ATTR {
    FloatV total = hn::Zero(d);
    for (int64_t begin = 0; begin < rows; begin += kBlock) {
      const int64_t end = std::min(rows, begin + kBlock);
      FloatV block = hn::Zero(d);
      for (int64_t row = begin; row < end; ++row) {
        block = hn::Add(block, access.Get(x + row * stride + i));
      }
      total = hn::Add(total, block);
    }
    access.Put(total, sums + i);
  });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {

HWY_EXPORT(AddFloatRow);
HWY_EXPORT(AddRoundedFloats);
HWY_EXPORT(SumColumnVectors);

void AddRow(float* y, const float* x, int64_t elements) {
  HWY_DYNAMIC_DISPATCH(AddFloatRow)(y, x, elements);
}

void WriteGrad(const GradOut& out, int64_t offset, const float* values, int64_t elements) {
  if (!out.accumulate) {
    auto* to = static_cast<std::byte*>(out.data) + offset * SizeOf(out.dtype);
    CastSerial(values, DType::kF32, to, out.dtype, elements);
  } else if (out.dtype == DType::kF32) {
    AddRow(static_cast<float*>(out.data) + offset, values, elements);
  } else {
    HWY_DYNAMIC_DISPATCH(AddRoundedFloats)
    (static_cast<BF16*>(out.data) + offset, values, elements);
  }
}

void SumColumns(const float* x, int64_t stride, int64_t rows, int64_t columns, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumColumnVectors)(x, stride, rows, columns, sums);
}

}  // namespace sherd
#endif
