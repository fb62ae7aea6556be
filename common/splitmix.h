#pragma once

#include <cstdint>

namespace sherd {

// The output function of SplitMix64 (Steele, Lea & Flood 2014) and its increment: a counter-based
// source of bits, for values that must be pure functions of a key and an index.
inline constexpr uint64_t kSplitMixGamma = 0x9E3779B97F4A7C15u;

constexpr uint64_t SplitMix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace sherd
