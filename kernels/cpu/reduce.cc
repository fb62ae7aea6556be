#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "kernels/cpu/cpu_ops_impl.h"
#include "kernels/cpu/fold.h"

namespace sherd {
namespace {

constexpr int64_t kRange = 1 << 16;

// A square's significand has 48 bits: 2^16 of them fit a 64-bit bin.
constexpr int64_t kSquaresPerFlush = 1 << 16;
constexpr int kExponents = 256;
constexpr uint32_t kNotFinite = 255;
// Neighbours usually share an exponent; separate bins keep their additions independent.
constexpr int kLanes = 4;
using Bins = std::array<std::array<uint64_t, kExponents>, kLanes>;

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t BitsOf(BF16 value) { return static_cast<uint32_t>(value.bits) << 16; }

// The significand is whole: a float is significand · 2^(exponent − 150), with exponent 1 for
// denormals, whose biased exponent is 0.
void AddSquare(uint32_t bits, std::array<uint64_t, kExponents>& bins) {
  const uint32_t exponent = (bits >> 23) & 255;
  const uint64_t significand = (bits & 0x7fffff) | (exponent != 0 ? 0x800000u : 0u);
  bins[exponent] += significand * significand;
}

// limbs += value · 2^shift
void AddShifted(ExactSum& sum, uint64_t value, int shift) {
  size_t limb = static_cast<size_t>(shift / 64);
  unsigned __int128 wide = static_cast<unsigned __int128>(value) << (shift % 64);
  unsigned __int128 carry = 0;
  for (; (wide != 0 || carry != 0) && limb < sum.limbs.size(); ++limb) {
    carry += sum.limbs[limb];
    carry += static_cast<uint64_t>(wide);
    sum.limbs[limb] = static_cast<uint64_t>(carry);
    carry >>= 64;
    wide >>= 64;
  }
}

template <typename T>
uint64_t CountNotFinite(const T* x, int64_t elements) {
  return static_cast<uint64_t>(std::count_if(
      x, x + elements, [](T value) { return ((BitsOf(value) >> 23) & 255) == kNotFinite; }));
}

// elements <= kSquaresPerFlush
template <typename T>
void AddBlock(const T* x, int64_t elements, ExactSum& sum) {
  Bins bins{};
  int64_t i = 0;
  for (; i + kLanes <= elements; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) AddSquare(BitsOf(x[i + lane]), bins[lane]);
  }
  for (; i < elements; ++i) AddSquare(BitsOf(x[i]), bins[0]);
  uint64_t not_finite = 0;
  for (const auto& lane : bins) {
    for (uint32_t exponent = 0; exponent < kNotFinite; ++exponent) {
      if (lane[exponent] == 0) continue;
      AddShifted(sum, lane[exponent], 2 * (std::max<int>(static_cast<int>(exponent), 1) - 1));
    }
    not_finite |= lane[kNotFinite];
  }
  // Never empty when something not finite came: its significand includes the implied bit.
  if (not_finite != 0) sum.nonfinite += CountNotFinite(x, elements);
}

}  // namespace

void CpuOps::AddSquares(const void* x, DType dtype, int64_t elements, ExactSum& sum) {
  std::vector<ExactSum> by_thread(static_cast<size_t>(pool_.threads()));
  const int64_t blocks = (elements + kSquaresPerFlush - 1) / kSquaresPerFlush;
  pool_.ParallelFor(blocks, [&](int64_t index, int thread) {
    const int64_t begin = index * kSquaresPerFlush;
    const int64_t count = std::min(kSquaresPerFlush, elements - begin);
    ExactSum& partial = by_thread[static_cast<size_t>(thread)];
    if (dtype == DType::kF32) {
      AddBlock(static_cast<const float*>(x) + begin, count, partial);
    } else {
      AddBlock(static_cast<const BF16*>(x) + begin, count, partial);
    }
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
