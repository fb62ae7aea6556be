// Exact sums of squares. The square of a float is exact in double; what is left is to add doubles
// without rounding. A block's squares are cut at fixed powers of two, chosen from its largest
// element, into parts whose sums are exact in double (Rump, Ogita & Oishi 2008, "error-free
// extraction"). The parts reach far below the largest square; a block with something still smaller
// is added through one integer bin an exponent instead, which is exact for anything.
#include "kernels/cpu/squares.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/squares.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vector-inl.h"

#ifndef SHERD_KERNELS_CPU_SQUARES_CC_
#define SHERD_KERNELS_CPU_SQUARES_CC_
namespace sherd {
// Sums of that many parts keep ten bits of head room.
inline constexpr int64_t kSquaresPerBlock = 1024;
// A second part catches most blocks of gradients, a third nearly all others.
inline constexpr int kMaxParts = 3;
struct PartSums {
  std::array<double, kMaxParts> sums;  // exact
  bool complete;                       // nothing was left below the last part
};
}  // namespace sherd
#endif

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

using DoubleTag = hn::ScalableTag<double>;
using DoubleV = hn::Vec<DoubleTag>;

HWY_INLINE DoubleV LoadDoubles(const float* from) {
  return hn::PromoteTo(DoubleTag(), hn::LoadU(hn::Rebind<float, DoubleTag>(), from));
}
HWY_INLINE DoubleV LoadDoubles(const BF16* from) {
  const hn::Rebind<uint16_t, DoubleTag> d16;
  const hn::Rebind<uint32_t, DoubleTag> d32;
  const auto halves = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(d32, halves));
  return hn::PromoteTo(DoubleTag(), hn::BitCast(hn::Rebind<float, DoubleTag>(), bits));
}

// The bits of the largest |x| of a block; those of anything not finite are larger than all others.
template <typename T>
HWY_INLINE uint32_t LargestBits(const T* x, int64_t elements) {
  const Uint32Tag d;
  auto largest = hn::Zero(d);
  ForVectors(elements, [&](auto access, int64_t i) HWY_ATTR {
    const auto bits = hn::BitCast(d, access.Get(x + i));
    largest = hn::Max(largest, hn::And(bits, hn::Set(d, 0x7fffffff)));
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// Extracts `kParts` parts of each square. cuts[k] is 1.5 · 2^(52 + q): adding and subtracting it
// rounds to a multiple of 2^q.
template <int kParts, typename T>
HWY_INLINE PartSums SumParts(const T* x, int64_t elements, const double* cuts) {
  const DoubleTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  DoubleV sums[kParts];
  for (DoubleV& sum : sums) sum = hn::Zero(d);
  auto left = hn::Zero(d);
  const auto extract = [&](DoubleV value) HWY_ATTR {
    DoubleV rest = hn::Mul(value, value);
    for (int k = 0; k < kParts; ++k) {
      const DoubleV cut = hn::Set(d, cuts[k]);
      const DoubleV part = hn::Sub(hn::Add(rest, cut), cut);
      sums[k] = hn::Add(sums[k], part);
      rest = hn::Sub(rest, part);
    }
    left = hn::Or(left, hn::Abs(rest));
  };
  int64_t i = 0;
  for (; i + lanes <= elements; i += lanes) extract(LoadDoubles(x + i));
  if (i < elements) {
    T tail[HWY_MAX_BYTES / sizeof(double)] = {};
    std::copy(x + i, x + elements, tail);
    extract(LoadDoubles(tail));
  }
  PartSums result{};
  for (int k = 0; k < kParts; ++k) {
    result.sums[k] = hn::GetLane(hn::SumOfLanes(d, sums[k]));
  }
  result.complete = hn::AllTrue(d, hn::Eq(left, hn::Zero(d)));
  return result;
}

uint32_t LargestFloatBits(const float* x, int64_t elements) { return LargestBits(x, elements); }
uint32_t LargestHalfBits(const BF16* x, int64_t elements) { return LargestBits(x, elements); }
PartSums SumFloatParts(const float* x, int64_t elements, const double* cuts, bool all) {
  return all ? SumParts<3>(x, elements, cuts) : SumParts<2>(x, elements, cuts);
}
PartSums SumHalfParts(const BF16* x, int64_t elements, const double* cuts, bool all) {
  return all ? SumParts<3>(x, elements, cuts) : SumParts<2>(x, elements, cuts);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sherd {
namespace {

HWY_EXPORT(LargestFloatBits);
HWY_EXPORT(LargestHalfBits);
HWY_EXPORT(SumFloatParts);
HWY_EXPORT(SumHalfParts);

uint32_t LargestOf(const float* x, int64_t elements) {
  return HWY_DYNAMIC_DISPATCH(LargestFloatBits)(x, elements);
}
uint32_t LargestOf(const BF16* x, int64_t elements) {
  return HWY_DYNAMIC_DISPATCH(LargestHalfBits)(x, elements);
}
PartSums PartsOf(const float* x, int64_t elements, const double* cuts, bool all) {
  return HWY_DYNAMIC_DISPATCH(SumFloatParts)(x, elements, cuts, all);
}
PartSums PartsOf(const BF16* x, int64_t elements, const double* cuts, bool all) {
  return HWY_DYNAMIC_DISPATCH(SumHalfParts)(x, elements, cuts, all);
}

constexpr uint32_t kNotFinite = 255;
uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t BitsOf(BF16 value) { return static_cast<uint32_t>(value.bits) << 16; }
uint32_t ExponentOf(uint32_t bits) { return bits >> 23 & 255; }

// sum += value · 2^shift, or −= when `negative`, modulo 2^640: sums of parts may be negative, their
// total is not.
void AddShifted(ExactSum& sum, uint64_t value, int shift, bool negative) {
  unsigned __int128 wide = static_cast<unsigned __int128>(value) << (shift % 64);
  unsigned carry = 0;
  for (auto limb = static_cast<size_t>(shift / 64); limb < sum.limbs.size(); ++limb) {
    const auto word = static_cast<uint64_t>(wide);
    wide >>= 64;
    const unsigned __int128 before = sum.limbs[limb];
    const unsigned __int128 after = negative ? before - word - carry : before + word + carry;
    sum.limbs[limb] = static_cast<uint64_t>(after);
    carry = static_cast<uint64_t>(after >> 64) != 0 ? 1 : 0;
    if (wide == 0 && carry == 0) return;
  }
}

// `value` is a multiple of the sum's unit.
void AddDouble(ExactSum& sum, double value) {
  if (value == 0) return;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);
  auto significand = static_cast<uint64_t>(std::ldexp(fraction, 53));
  int shift = exponent - 53 - ExactSum::kLowestExponent;
  if (shift < 0) {
    significand >>= -shift;
    shift = 0;
  }
  AddShifted(sum, significand, shift, value < 0);
}

// A float is significand · 2^(exponent − 150), with exponent 1 for denormals, whose biased exponent
// is 0. A significand's square has 48 bits: a block's sum fits 64.
template <typename T>
void AddThroughBins(const T* x, int64_t elements, ExactSum& sum) {
  std::array<uint64_t, kNotFinite> bins{};
  for (int64_t i = 0; i < elements; ++i) {
    const uint32_t bits = BitsOf(x[i]);
    const uint32_t exponent = ExponentOf(bits);
    if (exponent == kNotFinite) {
      ++sum.nonfinite;
      continue;
    }
    const uint64_t significand = (bits & 0x7fffff) | (exponent != 0 ? 0x800000u : 0u);
    bins[exponent] += significand * significand;
  }
  for (uint32_t exponent = 0; exponent < kNotFinite; ++exponent) {
    if (bins[exponent] == 0) continue;
    AddShifted(sum, bins[exponent], 2 * (std::max<int>(static_cast<int>(exponent), 1) - 1), false);
  }
}

template <typename T>
void AddBlock(const T* x, int64_t elements, ExactSum& sum) {
  const uint32_t largest = LargestOf(x, elements);
  if (largest == 0) return;
  if (ExponentOf(largest) == kNotFinite) return AddThroughBins(x, elements, sum);
  // All squares are below 2^top.
  const int top = 2 * (std::max<int>(static_cast<int>(ExponentOf(largest)), 1) - 126);
  double cuts[kMaxParts];
  for (int k = 0; k < kMaxParts; ++k) {
    // The first part's multiples of 2^(top − 43): a block's sum is below 2^(top + 10). What
    // rounding leaves is at most half a multiple, so each further part reaches 44 bits deeper.
    cuts[k] = std::ldexp(1.5, top - 43 - 44 * k + 52);
  }
  PartSums parts = PartsOf(x, elements, cuts, false);
  if (!parts.complete) parts = PartsOf(x, elements, cuts, true);
  if (!parts.complete) return AddThroughBins(x, elements, sum);
  for (const double part : parts.sums) AddDouble(sum, part);
}

template <typename T>
void AddBlocks(const T* x, int64_t elements, ExactSum& sum) {
  for (int64_t begin = 0; begin < elements; begin += kSquaresPerBlock) {
    AddBlock(x + begin, std::min(kSquaresPerBlock, elements - begin), sum);
  }
}

}  // namespace

void AddSquaresSerial(const void* x, DType dtype, int64_t elements, ExactSum& sum) {
  if (dtype == DType::kF32) {
    AddBlocks(static_cast<const float*>(x), elements, sum);
  } else {
    AddBlocks(static_cast<const BF16*>(x), elements, sum);
  }
}

}  // namespace sherd
#endif
