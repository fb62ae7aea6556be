#include "kernels/cpu/fold.h"

#include <cstring>

#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fold.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void AddTo(T* dst, const T* src, int64_t elements) {
  ForVectors(elements, [=](auto access, int64_t i) HWY_ATTR {
    access.Put(hn::Add(access.Get(dst + i), access.Get(src + i)), dst + i);
  });
}

void AddFloats(float* dst, const float* src, int64_t elements) { AddTo(dst, src, elements); }
void AddHalves(BF16* dst, const BF16* src, int64_t elements) { AddTo(dst, src, elements); }

void Widen(const BF16* src, float* dst, int64_t elements) {
  ForVectors(elements,
             [=](auto access, int64_t i) HWY_ATTR { access.Put(access.Get(src + i), dst + i); });
}
void Narrow(const float* src, BF16* dst, int64_t elements) {
  ForVectors(elements,
             [=](auto access, int64_t i) HWY_ATTR { access.Put(access.Get(src + i), dst + i); });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {

HWY_EXPORT(AddFloats);
HWY_EXPORT(AddHalves);
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void AddRoundedSerial(void* dst, const void* src, DType dtype, int64_t elements) {
  if (dtype == DType::kF32) {
    HWY_DYNAMIC_DISPATCH(AddFloats)
    (static_cast<float*>(dst), static_cast<const float*>(src), elements);
  } else {
    HWY_DYNAMIC_DISPATCH(AddHalves)
    (static_cast<BF16*>(dst), static_cast<const BF16*>(src), elements);
  }
}

void CastSerial(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t elements) {
  if (src_dtype == dst_dtype) {
    if (elements > 0) std::memcpy(dst, src, static_cast<size_t>(elements * SizeOf(dst_dtype)));
  } else if (src_dtype == DType::kBF16) {
    HWY_DYNAMIC_DISPATCH(Widen)
    (static_cast<const BF16*>(src), static_cast<float*>(dst), elements);
  } else {
    HWY_DYNAMIC_DISPATCH(Narrow)
    (static_cast<const float*>(src), static_cast<BF16*>(dst), elements);
  }
}

}  // namespace sherd
#endif
