// Vector helpers of the element-wise kernels, compiled once for each instruction set.
#if defined(SHERD_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHERD_KERNELS_CPU_VECTOR_INL_H_
#undef SHERD_KERNELS_CPU_VECTOR_INL_H_
#else
#define SHERD_KERNELS_CPU_VECTOR_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Int32Tag = hn::RebindToSigned<FloatTag>;
using Uint32Tag = hn::RebindToUnsigned<FloatTag>;
using Uint16Tag = hn::Rebind<uint16_t, FloatTag>;
using FloatV = hn::Vec<FloatTag>;

HWY_INLINE int64_t FloatLanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

HWY_INLINE FloatV Load(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE FloatV Load(const BF16* from) {
  const auto halves = hn::LoadU(Uint16Tag(), reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(Uint32Tag(), halves)));
}
HWY_INLINE void Store(FloatV value, float* to) { hn::StoreU(value, FloatTag(), to); }
// Rounds as ToBF16 does.
HWY_INLINE void Store(FloatV value, BF16* to) {
  const Uint32Tag d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x400000));
  const auto nan = hn::RebindMask(d32, hn::Ne(value, value));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(Uint16Tag(), hn::BitCast(Int32Tag(), upper)), Uint16Tag(),
             reinterpret_cast<uint16_t*>(to));
}

// How a kernel's body touches memory. The body is the same for whole vectors and for the tail, so
// an element's bits do not depend on where a range begins or ends.
struct WholeVector {
  template <typename T>
  HWY_INLINE FloatV Get(const T* from) const {
    return Load(from);
  }
  template <typename T>
  HWY_INLINE void Put(FloatV value, T* to) const {
    Store(value, to);
  }
};
// The first `count` lanes; others read as zero and are neither touched nor written.
struct PartOfVector {
  int64_t count;
  HWY_INLINE hn::Mask<FloatTag> Inside() const {
    return hn::FirstN(FloatTag(), static_cast<size_t>(count));
  }
  // By way of memory of our own: AVX2 has no masked access to halves, and NEON's reads and writes
  // all lanes, also those that are another thread's.
  template <typename T>
  HWY_INLINE FloatV Get(const T* from) const {
    alignas(64) T lanes[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(T));
    return Load(lanes);
  }
  template <typename T>
  HWY_INLINE void Put(FloatV value, T* to) const {
    alignas(64) T lanes[HWY_MAX_BYTES / sizeof(float)];
    Store(value, lanes);
    std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(T));
  }
};

// body(access, i) for every vector of [0, elements).
template <typename Body>
HWY_INLINE void ForVectors(int64_t elements, const Body& body) {
  const int64_t lanes = FloatLanes();
  int64_t i = 0;
  for (; i + lanes <= elements; i += lanes) body(WholeVector(), i);
  if (i < elements) body(PartOfVector{elements - i}, i);
}

// x limited to [low, high]; a NaN stays a NaN, which Min and Max promise nowhere.
HWY_INLINE FloatV Limited(FloatV x, float low, float high) {
  const FloatV low_v = hn::Set(FloatTag(), low);
  const FloatV high_v = hn::Set(FloatTag(), high);
  x = hn::IfThenElse(hn::Lt(x, low_v), low_v, x);
  return hn::IfThenElse(hn::Gt(x, high_v), high_v, x);
}

HWY_INLINE float SumLanes(FloatV value) { return hn::GetLane(hn::SumOfLanes(FloatTag(), value)); }
HWY_INLINE float MaxLanes(FloatV value) { return hn::GetLane(hn::MaxOfLanes(FloatTag(), value)); }

// The largest of values (count >= 1).
HWY_INLINE float MaxOf(const float* values, int64_t count) {
  const int64_t lanes = FloatLanes();
  if (count < lanes) {
    const PartOfVector part{count};
    const FloatV others = hn::Set(FloatTag(), values[0]);
    return MaxLanes(hn::IfThenElse(part.Inside(), part.Get(values), others));
  }
  // The last whole vector overlaps; a maximum does not mind.
  FloatV high = Load(values + count - lanes);
  for (int64_t i = 0; i + lanes <= count; i += lanes) high = hn::Max(high, Load(values + i));
  return MaxLanes(high);
}

// Σ term(access, i) in an order that depends on `elements` alone.
template <typename Term>
HWY_INLINE float SumVectors(int64_t elements, const Term& term) {
  const FloatTag d;
  const int64_t lanes = FloatLanes();
  FloatV sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * lanes <= elements; i += 4 * lanes) {
    sums[0] = hn::Add(sums[0], term(WholeVector(), i));
    sums[1] = hn::Add(sums[1], term(WholeVector(), i + lanes));
    sums[2] = hn::Add(sums[2], term(WholeVector(), i + 2 * lanes));
    sums[3] = hn::Add(sums[3], term(WholeVector(), i + 3 * lanes));
  }
  for (; i + lanes <= elements; i += lanes) sums[0] = hn::Add(sums[0], term(WholeVector(), i));
  if (i < elements) {
    const PartOfVector part{elements - i};
    // Lanes past the end may hold anything that term makes of zeros.
    sums[1] = hn::Add(sums[1], hn::IfThenElseZero(part.Inside(), term(part, i)));
  }
  return SumLanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#endif
