#pragma once

#include <cstdint>

#include "plan/parameters.h"

namespace sherd {

// Writes the initial values of elements [begin, end) of `parameter` to out[0 … end − begin): zeros,
// ones, or normal values that are a pure function of (seed, parameter.name, index in the whole
// tensor), however the tensor is cut into slices and ranges. Padding is zero.
//
// Normal values, all integers modulo 2^64, G = 0x9E3779B97F4A7C15:
//   mix(z):  z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB;
//            z ^= z >> 31                                   (SplitMix64, Steele et al. 2014)
//   hash:    64-bit FNV-1a of the name's bytes: h = 0xCBF29CE484222325; each byte b:
//            h = (h ^ b) · 0x100000001B3
//   key = mix(hash ^ mix(seed + G))
//   pair p = index / 2:  a = mix(key + (2p + 1)·G),  b = mix(key + (2p + 2)·G)
//   u = ((a >> 11) + 1) / 2^53 in (0, 1],  v = (b >> 11) / 2^53 in [0, 1)
//   z = sqrt(−2 ln u) · cos(2πv) for an even index, · sin(2πv) for an odd one   (Box & Muller 1958)
//   value = float(stddev · z), computed in double and rounded once.
void InitializeRange(const Parameter& parameter, uint64_t seed, int64_t begin, int64_t end,
                     float* out);

}  // namespace sherd
