#include "tests/kernels/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sherd {

Floats Draw::Normal(int64_t elements, float deviation, float mean) {
  std::normal_distribution<float> normal(mean, deviation);
  Floats values(static_cast<size_t>(elements));
  for (float& value : values) value = normal(generator_);
  return values;
}

Tokens Draw::Below(int32_t limit, int64_t count) {
  Tokens tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = static_cast<int32_t>(Between(0, limit - 1));
  return tokens;
}

int64_t Draw::Between(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(generator_);
}

Stored::Stored(const Floats& values, DType dtype)
    : bytes_(values.size() * static_cast<size_t>(SizeOf(dtype))), dtype_(dtype) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      reinterpret_cast<float*>(bytes_.data())[i] = values[i];
    } else {
      reinterpret_cast<BF16*>(bytes_.data())[i] = ToBF16(values[i]);
    }
  }
}

Stored Stored::Unset(int64_t elements, DType dtype) {
  return Stored(Floats(static_cast<size_t>(elements), std::numeric_limits<float>::quiet_NaN()),
                dtype);
}

Doubles Stored::values() const {
  Doubles values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = dtype_ == DType::kF32 ? reinterpret_cast<const float*>(bytes_.data())[i]
                                      : ToFloat(reinterpret_cast<const BF16*>(bytes_.data())[i]);
  }
  return values;
}

Doubles ToDoubles(const Floats& values) { return Doubles(values.begin(), values.end()); }

void ExpectClose(const Doubles& actual, const Doubles& expected, double tolerance,
                 absl::string_view what, double terms) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = terms;
  for (const double value : expected) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    // Written so that a NaN fails.
    const bool close = std::abs(actual[i] - expected[i]) <= tolerance * scale;
    ASSERT_TRUE(close) << what << "[" << i << "] is " << actual[i] << ", expected " << expected[i]
                       << " within " << tolerance * scale;
  }
}

void ExpectClose(const Floats& actual, const Doubles& expected, double tolerance,
                 absl::string_view what, double terms) {
  ExpectClose(ToDoubles(actual), expected, tolerance, what, terms);
}

}  // namespace sherd
