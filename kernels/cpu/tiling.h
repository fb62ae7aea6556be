#pragma once

#include <algorithm>
#include <cstdint>

namespace sherd {

constexpr int64_t CeilDiv(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// [begin, end) of the index-th piece of `size`.
struct Span1D {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Cuts [0, size) into near-equal pieces of at most about `limit`, multiples of `unit` but for the
// last. A function of the sizes alone.
class Cut {
 public:
  Cut(int64_t size, int64_t limit, int64_t unit) : size_(size), piece_(unit) {
    if (size == 0) return;
    const int64_t wanted = CeilDiv(size, limit);
    piece_ = CeilDiv(CeilDiv(size, wanted), unit) * unit;
    pieces_ = CeilDiv(size, piece_);
  }
  int64_t pieces() const { return pieces_; }
  // The size of the largest piece.
  int64_t largest() const { return std::min(size_, piece_); }
  Span1D operator[](int64_t index) const {
    return {index * piece_, std::min(size_, (index + 1) * piece_)};
  }

 private:
  int64_t size_;
  int64_t piece_;
  int64_t pieces_ = 0;
};

}  // namespace sherd
