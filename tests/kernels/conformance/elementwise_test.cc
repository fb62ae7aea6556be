#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Floats Grid(float low, float high, int64_t count) {
  Floats values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(count));
  }
  return values;
}

// The exponent's argument w, up to 90, is rounded before exp: relative error |w| · 2^-24, and a few
// units of 2^-24 more for exp, sum, quotient and products.
TEST(Gelu, IsAccurateOverItsWholeRange) {
  const auto ops = MakeTestedOps(2);
  const Floats x = Grid(-9, 9, 100'001);
  Floats y(x.size());
  ops->GeluForward(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    const double w =
        2 * std::sqrt(2 / std::acos(-1.0)) * (value + 0.044715 * value * value * value);
    // Without the cancellation of 1 + tanh.
    const double expected = value / (1 + std::exp(-w));
    const double bound = (8 + 4 * std::max(0.0, -w)) * std::ldexp(1.0, -24) * std::abs(expected);
    ASSERT_NEAR(y[i], expected, bound + 1e-37) << value;
    ASSERT_NEAR(expected, reference::Gelu(value), 1e-14) << value;
  }
}

TEST(Gelu, GradientIsTheReferenceOverItsWholeRange) {
  const auto ops = MakeTestedOps(2);
  const Floats x = Grid(-12, 12, 50'001);
  Floats dx(x.size(), 2.0f);
  ops->GeluBackward(dx.data(), x.data(), dx.data(), static_cast<int64_t>(x.size()));
  // Terms of up to 2, with about ten roundings of 2^-24 each.
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(dx[i], 2 * reference::GeluDerivative(x[i]), 1e-6) << x[i];
  }
}

TEST(Gelu, HasItsLimitsAndKeepsNaN) {
  const auto ops = MakeTestedOps(1);
  const Floats x = {0.0f, 1e20f, -1e20f, 3e38f, -3e38f, kNaN};
  Floats y(6), dx(6, 1.0f);
  ops->GeluForward(x.data(), y.data(), 6);
  ops->GeluBackward(dx.data(), x.data(), dx.data(), 6);
  EXPECT_EQ(Floats(y.begin(), y.begin() + 5), Floats({0, 1e20f, 0, 3e38f, 0}));
  const Floats slopes = {0.5f, 1, 0, 1, 0};
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(dx[i], slopes[i], 1e-34) << x[i];
  // F15
  EXPECT_TRUE(std::isnan(y[5]));
  EXPECT_TRUE(std::isnan(dx[5]));
}

TEST(Residual, AddsTheBiasThenTheStreamInPlaceAndApart) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, channels] :
       {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {7, 31}, {300, 133}, {2, 40'001}}) {
    for (const DType dtype : kTypes) {
      for (const bool biased : {false, true}) {
        Draw draw(static_cast<uint32_t>(channels));
        const Floats x = draw.Normal(rows * channels), residual = draw.Normal(rows * channels);
        const Stored bias(draw.Normal(channels), dtype);
        const Doubles bias_values = bias.values();
        Floats expected(x.size());
        for (size_t i = 0; i < x.size(); ++i) {
          const auto c = i % static_cast<size_t>(channels);
          expected[i] = (biased ? x[i] + static_cast<float>(bias_values[c]) : x[i]) + residual[i];
        }
        const ConstParam added = biased ? bias.param() : ConstParam{nullptr, dtype};
        Floats y(x.size()), on_x = x, on_residual = residual;
        ops->ResidualForward(x.data(), added, residual.data(), y.data(), rows, channels);
        ops->ResidualForward(on_x.data(), added, residual.data(), on_x.data(), rows, channels);
        ops->ResidualForward(x.data(), added, on_residual.data(), on_residual.data(), rows,
                             channels);
        for (const Floats* result : {&y, &on_x, &on_residual}) {
          EXPECT_TRUE(SameBits(*result, expected)) << channels;
        }
      }
    }
  }
}

Floats Awkward() {
  Floats values = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 1e-45f, -1e-40f, 3.4028235e38f, 1.0f};
  // Ties and their neighbours at every exponent.
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0x18000u, 0x17fffu, 0x7fffffu}) {
      values.push_back(std::bit_cast<float>(exponent << 23 | low));
    }
  }
  return values;
}

TEST(Cast, RoundsAsToBF16DoesAndWidensExactly) {
  const auto ops = MakeTestedOps(2);
  const Floats values = Awkward();
  const auto count = static_cast<int64_t>(values.size());
  std::vector<BF16> halves(values.size());
  Floats widened(values.size()), copied(values.size());
  ops->Cast(values.data(), DType::kF32, halves.data(), DType::kBF16, count);
  ops->Cast(halves.data(), DType::kBF16, widened.data(), DType::kF32, count);
  ops->Cast(values.data(), DType::kF32, copied.data(), DType::kF32, count);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(halves[i].bits, ToBF16(values[i]).bits) << values[i];
    EXPECT_EQ(std::bit_cast<uint32_t>(widened[i]), uint32_t{halves[i].bits} << 16);
  }
  EXPECT_TRUE(SameBits(copied, values));
}

TEST(AddRounded, AddsInFloatAndRoundsOnce) {
  const auto ops = MakeTestedOps(2);
  for (const int64_t count : {0, 1, 7, 16, 33, 70'001}) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(count));
      Stored dst(draw.Normal(count), dtype);
      const Stored src(draw.Normal(count), dtype);
      const Doubles a = dst.values(), b = src.values();
      Floats sums(a.size());
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] = static_cast<float>(a[i]) + static_cast<float>(b[i]);
      }
      ops->AddRounded(dst.data(), src.data(), dtype, count);
      EXPECT_EQ(dst, Stored(sums, dtype));
    }
  }
}

}  // namespace
}  // namespace sherd
