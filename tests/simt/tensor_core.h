#pragma once

// Host twins of kernels/cuda/ptx.cuh: the instructions that CUDA C++ has no words for.

#include "tests/simt/context.h"

namespace sherd {

namespace simt {

inline float UpperHalf(uint32_t word) { return __uint_as_float(word & 0xffff0000u); }
inline float LowerHalf(uint32_t word) { return __uint_as_float(word << 16); }

// Loads one 8 × 8 matrix of 16-bit elements a register: lane 8m + r gives where row r of matrix m
// is. A lane gets elements 2(l % 4) and the next of row l / 4, or, transposed, of column l / 4.
template <int kMatrices>
void LoadMatrices(uint32_t (&registers)[kMatrices], const void* row, bool transposed, Site site) {
  const uint64_t word = reinterpret_cast<uintptr_t>(row);
  const Exchange& exchange =
      JoinWarp(~0u, kLoadMatrix + 2 * kMatrices + transposed, &word, 1, false, site);
  const unsigned lane = Lane();
  for (unsigned m = 0; m < kMatrices; ++m) {
    uint32_t halves[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned along = 2 * (lane % 4) + i, across = lane / 4;
      const auto* from = reinterpret_cast<const uint16_t*>(
          exchange.values[m * 8 + (transposed ? along : across)][0]);
      halves[i] = from[transposed ? across : along];
    }
    registers[m] = halves[0] | halves[1] << 16;
  }
  FinishReading(exchange);
}

}  // namespace simt

inline void LoadMatrices4(uint32_t (&registers)[4], const void* row, simt::Site site = SIMT_SITE) {
  simt::LoadMatrices(registers, row, false, site);
}
inline void LoadMatrices4Transposed(uint32_t (&registers)[4], const void* row,
                                    simt::Site site = SIMT_SITE) {
  simt::LoadMatrices(registers, row, true, site);
}

inline uint32_t RoundPair(float first, float second) {
  const auto rounded = [](float value) -> uint32_t {
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  };
  return rounded(first) | rounded(second) << 16;
}

// mma.sync.m16n8k16: with g = l / 4 and q = l % 4, lane l holds
//   a0 (g, 2q), a1 (g + 8, 2q), a2 (g, 2q + 8), a3 (g + 8, 2q + 8), each with its right neighbour,
//   b0 (2q, g), b1 (2q + 8, g), each with its lower neighbour,
//   d0 d1 (g, 2q), d2 d3 (g + 8, 2q).
// The order in which a device adds the products is not specified; here it is that of k.
inline void MultiplyAdd16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                               simt::Site site = SIMT_SITE) {
  const uint64_t words[3] = {a[0] | uint64_t{a[1]} << 32, a[2] | uint64_t{a[3]} << 32,
                             b[0] | uint64_t{b[1]} << 32};
  const simt::Exchange& exchange = simt::JoinWarp(~0u, simt::kMma, words, 3, false, site);
  const unsigned lane = simt::Lane(), group = lane / 4, quad = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row_half = i / 2, column = 2 * quad + i % 2;
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned of_pair = k % 8 / 2;
      const uint64_t a_words = exchange.values[group * 4 + of_pair][k / 8];
      const uint64_t b_words = exchange.values[column * 4 + of_pair][2];
      const auto a_word = static_cast<uint32_t>(a_words >> 32 * row_half);
      const auto b_word = static_cast<uint32_t>(b_words >> 32 * (k / 8));
      sum += k % 2 == 0 ? simt::LowerHalf(a_word) * simt::LowerHalf(b_word)
                        : simt::UpperHalf(a_word) * simt::UpperHalf(b_word);
    }
    d[i] += sum;
  }
  simt::FinishReading(exchange);
}

inline void CopyAsync16(void* to, const void* from, simt::Site site = SIMT_SITE) {
  simt::CopyLater(to, from, 16, site);
}
inline void CommitCopies() { simt::CommitCopies(); }
template <int kGroups>
inline void WaitForCopies() {
  simt::WaitForCopies(kGroups);
}

}  // namespace sherd
