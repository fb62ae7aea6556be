#pragma once

// Elements in memory: fp32 or bf16, read as fp32, in packs that follow each other in one thread.

#include <cstdint>

#include "kernels/cuda/simt.h"
#include "kernels/dtype.h"

namespace sherd {

__device__ __forceinline__ float Widened(float value) { return value; }
__device__ __forceinline__ float Widened(BF16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}

// The bits of ToBF16 (kernels/dtype.h), NaN included.
__device__ __forceinline__ uint32_t Bf16Bits(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
// Two in a register, the first in the lower half.
__device__ __forceinline__ uint32_t Bf16Pair(float first, float second) {
  return Bf16Bits(first) | Bf16Bits(second) << 16;
}

__device__ __forceinline__ float RoundedToBf16(float value) {
  return __uint_as_float(Bf16Bits(value) << 16);
}

__device__ __forceinline__ void Store(float value, float* to) { *to = value; }
__device__ __forceinline__ void Store(float value, BF16* to) {
  to->bits = static_cast<uint16_t>(Bf16Bits(value));
}

inline constexpr float kLog2E = 1.4426950408889634f;

template <int kWidth>
struct Pack {
  float v[kWidth];
};

// Whether packs of a width (at most 16 bytes of an access) may be read and written whole there.
__device__ __forceinline__ bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

template <int kWidth>
__device__ __forceinline__ void LoadWhole(const float* from, Pack<kWidth>& pack) {
  static_assert(kWidth % 4 == 0, "16 bytes an access");
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    pack.v[i] = four.x;
    pack.v[i + 1] = four.y;
    pack.v[i + 2] = four.z;
    pack.v[i + 3] = four.w;
  }
}
template <int kWidth>
__device__ __forceinline__ void StoreWhole(const Pack<kWidth>& pack, float* to) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    *reinterpret_cast<float4*>(to + i) =
        float4{pack.v[i], pack.v[i + 1], pack.v[i + 2], pack.v[i + 3]};
  }
}
__device__ __forceinline__ void WidenPair(uint32_t pair, float& first, float& second) {
  first = __uint_as_float(pair << 16);
  second = __uint_as_float(pair & 0xffff0000u);
}
__device__ __forceinline__ void LoadWhole(const BF16* from, Pack<8>& pack) {
  const uint4 eight = *reinterpret_cast<const uint4*>(from);
  WidenPair(eight.x, pack.v[0], pack.v[1]);
  WidenPair(eight.y, pack.v[2], pack.v[3]);
  WidenPair(eight.z, pack.v[4], pack.v[5]);
  WidenPair(eight.w, pack.v[6], pack.v[7]);
}
__device__ __forceinline__ void LoadWhole(const BF16* from, Pack<4>& pack) {
  const uint2 four = *reinterpret_cast<const uint2*>(from);
  WidenPair(four.x, pack.v[0], pack.v[1]);
  WidenPair(four.y, pack.v[2], pack.v[3]);
}
__device__ __forceinline__ void StoreWhole(const Pack<8>& pack, BF16* to) {
  *reinterpret_cast<uint4*>(to) =
      uint4{Bf16Pair(pack.v[0], pack.v[1]), Bf16Pair(pack.v[2], pack.v[3]),
            Bf16Pair(pack.v[4], pack.v[5]), Bf16Pair(pack.v[6], pack.v[7])};
}
__device__ __forceinline__ void StoreWhole(const Pack<4>& pack, BF16* to) {
  *reinterpret_cast<uint2*>(to) =
      uint2{Bf16Pair(pack.v[0], pack.v[1]), Bf16Pair(pack.v[2], pack.v[3])};
}

// The pack at `from`, of which `left` elements are there; what is not reads as zero. `whole`: the
// array is aligned. Bits do not depend on it.
template <int kWidth, typename T>
__device__ __forceinline__ Pack<kWidth> LoadPack(const T* from, int64_t left, bool whole) {
  Pack<kWidth> pack;
  if constexpr (kWidth > 1) {
    if (whole && left >= kWidth) {
      LoadWhole(from, pack);
      return pack;
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.v[i] = i < left ? Widened(from[i]) : 0.0f;
  return pack;
}
template <int kWidth, typename T>
__device__ __forceinline__ void StorePack(const Pack<kWidth>& pack, T* to, int64_t left,
                                          bool whole) {
  if constexpr (kWidth > 1) {
    if (whole && left >= kWidth) return StoreWhole(pack, to);
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (i < left) Store(pack.v[i], to + i);
  }
}

// Adds to what is there, in fp32, or overwrites it, and rounds once.
template <int kWidth, typename T>
__device__ __forceinline__ void WriteGradient(Pack<kWidth> pack, T* to, int64_t left, bool whole,
                                              bool accumulate) {
  if (accumulate) {
    const Pack<kWidth> there = LoadPack<kWidth>(to, left, whole);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.v[i] = there.v[i] + pack.v[i];
  }
  StorePack(pack, to, left, whole);
}

// Of an element-wise kernel with one pack a thread: where the thread's begins.
template <int kWidth>
__device__ __forceinline__ int64_t PackOfThread() {
  return (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth;
}

// Of an element-wise kernel over rows of `channels`, which are cut into packs one by one: the pack
// of the thread.
struct PackOfRow {
  int64_t row, column, left;
};
template <int kWidth>
__device__ __forceinline__ PackOfRow FindPack(int64_t channels) {
  const int64_t packs = (channels + kWidth - 1) / kWidth;
  const int64_t index = PackOfThread<1>();
  int64_t row, pack;
  // A 64-bit division takes as long as the rest of such a kernel.
  if (index <= 0xffffffffll && packs <= 0xffffffffll) {
    row = static_cast<uint32_t>(index) / static_cast<uint32_t>(packs);
    pack = static_cast<uint32_t>(index) % static_cast<uint32_t>(packs);
  } else {
    row = index / packs;
    pack = index % packs;
  }
  return {row, pack * kWidth, channels - pack * kWidth};
}

}  // namespace sherd
