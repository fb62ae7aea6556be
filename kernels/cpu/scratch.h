#pragma once

#include <cstdint>

#include "hwy/aligned_allocator.h"

namespace sherd {

// A buffer that grows to the largest size asked for and is then kept. Contents are not. One thread.
class Scratch {
 public:
  float* Floats(int64_t count) {
    if (count > capacity_) {
      floats_ = nullptr;
      floats_ = hwy::AllocateAligned<float>(static_cast<size_t>(count));
      capacity_ = count;
    }
    return floats_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> floats_;
  int64_t capacity_ = 0;
};

// What one thread needs within a tile.
struct ThreadScratch {
  Scratch panel;              // a copied operand; widened weights are kept from tile to tile
  int64_t panel_origin = -1;  // where in the matrix they begin; -1: nowhere
  Scratch tile;               // an output tile before rounding
  Scratch values;             // scores, rows, widened vectors
};

}  // namespace sherd
