#include "worker/pretrained/element_type.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sherd {
namespace {

// From the definition of binary16.
double HalfValue(uint16_t half) {
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  const int exponent = (half >> 10) & 31;
  const double fraction = half & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(ElementType, EveryHalfIsReadExactlyAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(HalfValue(half))) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
      continue;
    }
    ASSERT_EQ(value, HalfValue(half)) << bits;
    ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << bits;
    ASSERT_EQ(FloatToHalf(value), half) << bits;
  }
}

// The nearest of the two halves around a value, and among equals the one whose last bit is 0.
TEST(ElementType, RoundsToTheNearestHalf) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const auto below = static_cast<uint16_t>(bits);
    const auto above = static_cast<uint16_t>(bits + 1);
    const double middle = (HalfValue(below) + HalfValue(above)) / 2;
    const auto exact = static_cast<float>(middle);
    ASSERT_EQ(exact, middle);
    ASSERT_EQ(FloatToHalf(exact), bits % 2 == 0 ? below : above) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(exact, 0.0f)), below) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(exact, 1e9f)), above) << bits;
    ASSERT_EQ(FloatToHalf(-exact), (bits % 2 == 0 ? below : above) | 0x8000) << bits;
  }
}

TEST(ElementType, TellsWhatOverflows) {
  const std::vector<float> values = {65504, 65519,  65520,
                                     -1e6f, 1e-30f, std::numeric_limits<float>::infinity()};
  std::vector<std::byte> bytes(values.size() * 2);
  EXPECT_EQ(EncodeElements(ElementType::kF16, values.data(), 6, bytes.data()), 2);
  std::vector<float> back(values.size());
  DecodeElements(ElementType::kF16, bytes.data(), 6, back.data());
  EXPECT_EQ(back[1], 65504);
  EXPECT_TRUE(std::isinf(back[2]));
  EXPECT_EQ(back[4], 0);
  EXPECT_EQ(EncodeElements(ElementType::kBF16, values.data(), 6, bytes.data()), 0);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(EncodeElements(ElementType::kBF16, &largest, 1, bytes.data()), 1);
}

}  // namespace
}  // namespace sherd
