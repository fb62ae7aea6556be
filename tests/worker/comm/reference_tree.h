#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dtype.h"

namespace sherd {

// Values of a type, as their bytes.
using Values = std::vector<std::byte>;

inline float ValueAt(const Values& values, DType dtype, int64_t index) {
  const std::byte* at = values.data() + index * SizeOf(dtype);
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  BF16 value;
  std::memcpy(&value, at, sizeof(value));
  return ToFloat(value);
}

inline void SetValue(Values& values, DType dtype, int64_t index, float value) {
  std::byte* at = values.data() + index * SizeOf(dtype);
  if (dtype == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
  } else {
    const BF16 rounded = ToBF16(value);
    std::memcpy(at, &rounded, sizeof(rounded));
  }
}

// Magnitudes far apart, so that another order of summation gives other bits.
inline Values RandomValues(std::mt19937_64& random, DType dtype, int64_t elements) {
  Values values(static_cast<size_t>(elements * SizeOf(dtype)));
  for (int64_t i = 0; i < elements; ++i) {
    const float unit = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
    SetValue(values, dtype, i, unit * static_cast<float>(1 << (random() % 8)));
  }
  return values;
}

// Summation as design.md section 4 defines it, element by element and by recursion.
class ReferenceTree {
 public:
  ReferenceTree(DType dtype, int64_t elements) : dtype_(dtype), elements_(elements) {}

  Values Sum(const std::vector<Values>& leaves) const {
    Values sum(static_cast<size_t>(elements_ * SizeOf(dtype_)));
    size_t end = leaves.size();
    // From the least significant digit up: the last block is the smallest.
    for (size_t block = 1; block <= leaves.size(); block *= 2) {
      if ((leaves.size() & block) == 0) continue;
      const Values digit = Block(leaves, end - block, block);
      sum = end == leaves.size() ? digit : Node(digit, sum);
      end -= block;
    }
    return sum;
  }

 private:
  Values Block(const std::vector<Values>& leaves, size_t begin, size_t count) const {
    if (count == 1) return leaves[begin];
    return Node(Block(leaves, begin, count / 2), Block(leaves, begin + count / 2, count / 2));
  }
  Values Node(const Values& a, const Values& b) const {
    Values sum(a.size());
    for (int64_t i = 0; i < elements_; ++i) {
      SetValue(sum, dtype_, i, ValueAt(a, dtype_, i) + ValueAt(b, dtype_, i));
    }
    return sum;
  }

  DType dtype_;
  int64_t elements_;
};

}  // namespace sherd
