#pragma once

#include <cstdint>

namespace sherd {

// The order in which windows of the training data are visited: a pure function of (seed, number of
// windows, sample index), so that it depends on no world size and survives any restart. Each pass
// over the data visits every window exactly once, in an order of its own.
//
// A permutation of [0, W) by a balanced Feistel network (Luby & Rackoff 1988) with cycle walking
// (Black & Rogaway 2002). With mix and G of worker/model/init.h, integers modulo 2^64:
//   pass = i / W, x = i mod W;  h >= 1 is the least with 4^h >= W
//   key_r = mix(mix(mix(seed + G) + pass·G) + (r + 1)·G) for rounds r = 0 … 5
//   repeat: (left, right) = (x >> h, x mod 2^h); each round: (left, right) = (right,
//   left ^ (mix(right ^ key_r) mod 2^h)); x = left·2^h + right; until x < W
class SampleOrder {
 public:
  // `windows` >= 1.
  SampleOrder(int64_t windows, uint64_t seed) : windows_(windows), seed_(seed) {}

  int64_t windows() const { return windows_; }
  // The window of global sample `index` >= 0.
  int64_t Window(int64_t index) const;

 private:
  int64_t windows_;
  uint64_t seed_;
};

}  // namespace sherd
