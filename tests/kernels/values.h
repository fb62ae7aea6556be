#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/dtype.h"
#include "kernels/ops.h"
#include "tests/kernels/reference.h"

namespace sherd {

using reference::Doubles;
using reference::Tokens;
using Floats = std::vector<float>;

// Values and shapes of the tests, from a seeded generator.
class Draw {
 public:
  explicit Draw(uint32_t seed) : generator_(seed) {}
  // Normal, rounded to float.
  Floats Normal(int64_t elements, float deviation = 1, float mean = 0);
  // Uniform in [0, limit).
  Tokens Below(int32_t limit, int64_t count);
  // Uniform in [low, high].
  int64_t Between(int64_t low, int64_t high);

 private:
  std::mt19937 generator_;
};

// Values kept in a type, as parameters and gradients are.
class Stored {
 public:
  Stored(const Floats& values, DType dtype);
  // Filled with NaN, to show that a result is written and not added to.
  static Stored Unset(int64_t elements, DType dtype);

  ConstParam param() const { return {bytes_.data(), dtype_}; }
  GradOut grad(bool accumulate) { return {bytes_.data(), dtype_, accumulate}; }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  DType dtype() const { return dtype_; }
  int64_t elements() const { return static_cast<int64_t>(bytes_.size()) / SizeOf(dtype_); }
  Doubles values() const;
  friend bool operator==(const Stored& a, const Stored& b) { return a.bytes_ == b.bytes_; }

 private:
  std::vector<std::byte> bytes_;
  DType dtype_;
};

Doubles ToDoubles(const Floats& values);

// Every |actual − expected| <= tolerance · scale, where scale is the largest |expected| of the
// tensor, or `terms` if that is larger: rounding errors of a sum go with its largest terms.
void ExpectClose(const Doubles& actual, const Doubles& expected, double tolerance,
                 absl::string_view what, double terms = 0);
void ExpectClose(const Floats& actual, const Doubles& expected, double tolerance,
                 absl::string_view what, double terms = 0);

// Sums of up to about 2,000 products in fp32 stay within a few hundred units of 2^-24 of their
// largest terms, typically far below.
inline constexpr double kFloatTolerance = 1e-5;
// One rounding to 8 bits of significand is off by at most 2^-8 of the value.
inline double ToleranceOf(DType dtype) {
  return dtype == DType::kF32 ? kFloatTolerance : 1.0 / 256 + kFloatTolerance;
}

inline bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace sherd
