#pragma once

#include <cstdint>

#include "common/check.h"
#include "kernels/memory.h"

namespace sherd {

// A buffer that grows to the largest size reserved and is then kept, counted in Pool::kScratch.
// Contents are not kept.
class Scratch {
 public:
  explicit Scratch(MemoryMeter& meter) : meter_(&meter) {}

  // Room for `count` floats.
  void Reserve(int64_t count) {
    if (count <= capacity_) return;
    buffer_ = Buffer();
    buffer_ = Buffer(*meter_, Pool::kScratch, count * static_cast<int64_t>(sizeof(float)));
    capacity_ = count;
  }
  // At least `count` floats, which are reserved.
  float* Floats(int64_t count) const {
    SHERD_CHECK(count <= capacity_);
    return buffer_.as<float>();
  }

 private:
  MemoryMeter* meter_;
  Buffer buffer_;
  int64_t capacity_ = 0;
};

// What one thread needs within a tile.
struct ThreadScratch {
  explicit ThreadScratch(MemoryMeter& meter) : panel(meter), tile(meter), values(meter) {}

  Scratch panel;              // a copied operand; widened weights are kept from tile to tile
  int64_t panel_origin = -1;  // where in the matrix they begin; -1: nowhere
  Scratch tile;               // an output tile before rounding
  Scratch values;             // scores, rows, sums, widened vectors
};

}  // namespace sherd
