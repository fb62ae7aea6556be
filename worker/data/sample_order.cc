#include "worker/data/sample_order.h"

#include <array>

#include "common/check.h"
#include "common/splitmix.h"

namespace sherd {
namespace {

constexpr int kRounds = 6;

using RoundKeys = std::array<uint64_t, kRounds>;

RoundKeys KeysOf(uint64_t seed, uint64_t pass) {
  const uint64_t pass_key = SplitMix(SplitMix(seed + kSplitMixGamma) + pass * kSplitMixGamma);
  RoundKeys keys;
  for (uint64_t round = 0; round < kRounds; ++round) {
    keys[round] = SplitMix(pass_key + (round + 1) * kSplitMixGamma);
  }
  return keys;
}

// A permutation of [0, 4^half_bits).
uint64_t Permute(uint64_t x, const RoundKeys& keys, int half_bits) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = x >> half_bits;
  uint64_t right = x & mask;
  for (const uint64_t key : keys) {
    const uint64_t next = left ^ (SplitMix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits) | right;
}

}  // namespace

int64_t SampleOrder::Window(int64_t index) const {
  SHERD_CHECK(index >= 0 && windows_ >= 1);
  const auto windows = static_cast<uint64_t>(windows_);
  const auto sample = static_cast<uint64_t>(index);
  int half_bits = 1;
  while (half_bits < 32 && (uint64_t{1} << (2 * half_bits)) < windows) ++half_bits;
  const RoundKeys keys = KeysOf(seed_, sample / windows);
  uint64_t x = sample % windows;
  do {
    x = Permute(x, keys, half_bits);
  } while (x >= windows);
  return static_cast<int64_t>(x);
}

}  // namespace sherd
