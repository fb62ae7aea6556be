#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  int64_t rows, ffn;
};
constexpr Case kCases[] = {{1, 1}, {3, 1}, {2, 17}, {65, 33}, {5, 20'001}, {0, 7}};

TEST(SwiGlu, ForwardAndBackwardAreTheReference) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, ffn] : kCases) {
    Draw draw(static_cast<uint32_t>(rows * ffn));
    const Floats gate_up = draw.Normal(rows * 2 * ffn, 4);
    const Floats dy = draw.Normal(rows * ffn);
    Floats y(dy.size()), gradient(gate_up.size(), kNaN);
    ops->SwiGluForward(gate_up.data(), y.data(), rows, ffn);
    ExpectClose(y, reference::SwiGluForward(ToDoubles(gate_up), rows, ffn), 1e-6, "y");
    ops->SwiGluBackward(dy.data(), gate_up.data(), gradient.data(), rows, ffn);
    ExpectClose(gradient, reference::SwiGluBackward(ToDoubles(dy), ToDoubles(gate_up), rows, ffn),
                1e-6, "gradient");
    Floats in_place = gate_up;
    ops->SwiGluBackward(dy.data(), in_place.data(), in_place.data(), rows, ffn);
    EXPECT_TRUE(SameBits(in_place, gradient));
  }
}

TEST(SwiGlu, HasItsLimitsAndKeepsNaN) {
  const auto ops = MakeTestedOps(1);
  const Floats gate = {0.0f, 100.0f, -100.0f, 3e38f, -3e38f, -88.5f, kNaN};
  const size_t count = gate.size();
  Floats gate_up = gate;
  gate_up.insert(gate_up.end(), count, 1.0f);
  Floats y(count), gradient(2 * count);
  const Floats dy(count, 1.0f);
  ops->SwiGluForward(gate_up.data(), y.data(), 1, static_cast<int64_t>(count));
  ops->SwiGluBackward(dy.data(), gate_up.data(), gradient.data(), 1, static_cast<int64_t>(count));
  const Floats silu = {0, 100, 0, 3e38f, 0, 0};
  const Floats slope = {0.5f, 1, 0, 1, 0, 0};
  for (size_t i = 0; i < silu.size(); ++i) {
    EXPECT_NEAR(y[i], silu[i], 1e-30) << gate[i];
    EXPECT_NEAR(gradient[i], slope[i], 1e-30) << gate[i];
    EXPECT_NEAR(gradient[count + i], silu[i], 1e-30) << gate[i];
  }
  // F15
  EXPECT_TRUE(std::isnan(y.back()));
  EXPECT_TRUE(std::isnan(gradient[count - 1]));
  EXPECT_TRUE(std::isnan(gradient.back()));
}

}  // namespace
}  // namespace sherd
