// exp for float vectors, compiled once for each instruction set.
#if defined(SHERD_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHERD_KERNELS_CPU_EXP_INL_H_
#undef SHERD_KERNELS_CPU_EXP_INL_H_
#else
#define SHERD_KERNELS_CPU_EXP_INL_H_
#endif

#include "kernels/cpu/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sherd {
namespace HWY_NAMESPACE {

// 2^n for integer n in [-126, 127].
HWY_INLINE FloatV PowerOfTwo(hn::Vec<Int32Tag> n) {
  const Int32Tag di;
  return hn::BitCast(FloatTag(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// e^x within 2 ulp; +inf above 88.73, denormal and then zero below -87.3; NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite 1980) and the Cephes polynomial for e^r.
HWY_INLINE FloatV Exp(FloatV x) {
  const FloatTag d;
  const Int32Tag di;
  x = Limited(x, -105.0f, 89.0f);
  // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits.
  const FloatV magic = hn::Set(d, 12582912.0f);
  const FloatV shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const FloatV n = hn::Sub(shifted, magic);
  FloatV r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  FloatV poly = hn::Set(d, 1.9875691500e-4f);
  poly = hn::MulAdd(poly, r, hn::Set(d, 1.3981999507e-3f));
  poly = hn::MulAdd(poly, r, hn::Set(d, 8.3334519073e-3f));
  poly = hn::MulAdd(poly, r, hn::Set(d, 4.1665795894e-2f));
  poly = hn::MulAdd(poly, r, hn::Set(d, 1.6666665459e-1f));
  poly = hn::MulAdd(poly, r, hn::Set(d, 5.0000001201e-1f));
  const FloatV e_r = hn::Add(hn::MulAdd(hn::Mul(poly, r), r, r), hn::Set(d, 1.0f));
  // In two halves, so that neither overflows or is denormal.
  const auto whole = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const auto half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(e_r, PowerOfTwo(half)), PowerOfTwo(hn::Sub(whole, half)));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace sherd
HWY_AFTER_NAMESPACE();

#endif
