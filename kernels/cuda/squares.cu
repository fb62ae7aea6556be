// Exact sums of squares, in whole numbers, whose sum has no order. A float is significand · 2^(e −
// 150), with e = 1 for denormals; its square is significand² · 2^(2e − 300), so in units of
// ExactSum (2^−298) a whole number of 48 bits, shifted left by 2 (e − 1).
//
// First stage: a block takes chunks of elements. Those within 32 exponents of the chunk's largest,
// nearly all of them, are added up by each thread in 128 bits, then over the block; what is smaller
// goes one by one where it belongs. Both end up in digits of 32 bits, each kept in 64, so that 2^32
// sums may be added before any carry. Second stage: the digits of all blocks, and the carries.

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sherd {
namespace {

using Wide = unsigned __int128;
using Word = unsigned long long;

constexpr int kWidth = 8;
constexpr int kThreads = 256;
constexpr int kChunk = kThreads * kWidth;
constexpr int kWarps = kThreads / 32;
// 640 bits; then the number of values that are not finite.
constexpr int kDigits = 20;
constexpr int kRecord = kDigits + 1;
// Below a chunk's largest exponent: 48 bits of a square, 64 of shift and 11 of a chunk's sum fit
// 128.
constexpr int kReach = 32;
constexpr uint32_t kNotFinite = 255;
// Chunks of a block: bits do not depend on it, and records are few.
constexpr int64_t kMostBlocks = 1024;
static_assert(ExactSum::kLowestExponent == -298 && sizeof(ExactSum::limbs) == kDigits * 4);

__device__ __forceinline__ uint32_t ExponentOf(uint32_t bits) { return bits >> 23 & 255; }
__device__ __forceinline__ uint32_t SignificandOf(uint32_t bits) {
  return (bits & 0x7fffffu) | (ExponentOf(bits) != 0 ? 0x800000u : 0u);
}
// Of the number's own scale: denormals have that of exponent 1.
__device__ __forceinline__ int ScaleOf(uint32_t bits) {
  return max(static_cast<int>(ExponentOf(bits)), 1);
}

// digits += value · 2^shift. What would be beyond the last digit is zero.
__device__ __forceinline__ void AddDigits(Word* digits, Wide value, int shift) {
  const int first = shift / 32, within = shift % 32;
  // The lowest bits of the value on their own: shifted up, it may have 160 bits.
  uint32_t word = static_cast<uint32_t>(value) << within;
  value = value >> (32 - within);
  for (int digit = first; digit < kDigits; ++digit) {
    if (word != 0) atomicAdd(digits + digit, Word{word});
    if (value == 0) break;
    word = static_cast<uint32_t>(value);
    value >>= 32;
  }
}

__device__ __forceinline__ Wide SumOfWarp(Wide value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const Word low = __shfl_xor_sync(kAllLanes, static_cast<Word>(value), lanes);
    const Word high = __shfl_xor_sync(kAllLanes, static_cast<Word>(value >> 64), lanes);
    value += Wide{high} << 64 | low;
  }
  return value;
}

// The largest over the block. Bits of floats without a sign are ordered as whole numbers.
__device__ __forceinline__ uint32_t LargestOfBlock(uint32_t value) {
  SIMT_SHARED(uint32_t, of_warps, [kWarps]);
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = max(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (int i = 1; i < kWarps; ++i) value = max(value, of_warps[i]);
  return value;
}

// records (blocks, kRecord). Four blocks are asked of the compiler: for more it would spill
// registers.
template <typename T>
__global__ void __launch_bounds__(kThreads, 4)
    SquareDigitsKernel(const T* x, int64_t elements, bool whole, Word* records) {
  SIMT_SHARED(Word, digits, [kRecord]);
  if (threadIdx.x < kRecord) digits[threadIdx.x] = 0;
  for (int64_t chunk = int64_t{blockIdx.x} * kChunk; chunk < elements;
       chunk += int64_t{gridDim.x} * kChunk) {
    const int64_t at = chunk + threadIdx.x * kWidth;
    const Pack<kWidth> pack = LoadPack<kWidth>(x + at, elements - at, whole);
    uint32_t bits[kWidth], largest = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      bits[i] = __float_as_uint(pack.v[i]) & 0x7fffffffu;
      if (ExponentOf(bits[i]) != kNotFinite) largest = max(largest, bits[i]);
    }
    // Also waits for the zeros above.
    const int lowest = max(ScaleOf(LargestOfBlock(largest)) - kReach, 1);
    Wide sum = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const Word square = Word{SignificandOf(bits[i])} * SignificandOf(bits[i]);
      const int scale = ScaleOf(bits[i]);
      if (ExponentOf(bits[i]) == kNotFinite) {
        atomicAdd(digits + kDigits, Word{1});
      } else if (scale >= lowest) {
        sum += Wide{square} << 2 * (scale - lowest);
      } else if (square != 0) {
        AddDigits(digits, square, 2 * (scale - 1));
      }
    }
    sum = SumOfWarp(sum);
    if (threadIdx.x % 32 == 0) AddDigits(digits, sum, 2 * (lowest - 1));
  }
  __syncthreads();
  if (threadIdx.x < kRecord) {
    records[int64_t{blockIdx.x} * kRecord + threadIdx.x] = digits[threadIdx.x];
  }
}

// *sum += the records' sum; one warp, a digit a lane.
__global__ void __launch_bounds__(32)
    JoinSquareDigitsKernel(const Word* records, int64_t count, ExactSum* sum) {
  SIMT_SHARED(Word, digits, [kRecord]);
  if (threadIdx.x < kRecord) {
    Word digit = 0;
    for (int64_t i = 0; i < count; ++i) digit += records[i * kRecord + threadIdx.x];
    digits[threadIdx.x] = digit;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto* const limbs = reinterpret_cast<uint64_t*>(sum);
  Wide carry = 0;
  for (int limb = 0; limb < kDigits / 2; ++limb) {
    carry += limbs[limb];
    carry += digits[2 * limb];
    carry += Wide{digits[2 * limb + 1]} << 32;
    limbs[limb] = static_cast<uint64_t>(carry);
    carry >>= 64;
  }
  sum->nonfinite += digits[kDigits];
}

}  // namespace

void CudaKernels::AddSquares(const void* x, DType dtype, int64_t elements, ExactSum* sum) {
  if (elements == 0) return;
  const int64_t chunks = CeilDiv(elements, kChunk);
  const int64_t blocks = chunks < kMostBlocks ? chunks : kMostBlocks;
  Word* const records = Scratch<Word>(blocks * kRecord);
  ForType(dtype, [&](auto type) {
    using T = decltype(type);
    Run(SIMT_KERNEL(SquareDigitsKernel<T>), blocks, kThreads, 0, static_cast<const T*>(x), elements,
        AllAligned(x), records);
  });
  Run(SIMT_KERNEL(JoinSquareDigitsKernel), 1, 32, 0, records, blocks, sum);
}

}  // namespace sherd
