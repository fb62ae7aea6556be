#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

struct LossShape {
  int64_t rows, vocab;
};
constexpr LossShape kShapes[] = {{1, 1}, {1, 2}, {5, 15}, {67, 256}, {3, 20'011}, {0, 9}};

Tokens SomeTargets(Draw& draw, const LossShape& shape) {
  Tokens targets = draw.Below(static_cast<int32_t>(shape.vocab), shape.rows);
  for (size_t i = 2; i < targets.size(); i += 3) targets[i] = -1;
  return targets;
}

TEST(CrossEntropy, LossAndGradientAreTheReference) {
  const auto ops = MakeCpuOps(2);
  for (const LossShape& shape : kShapes) {
    Draw draw(static_cast<uint32_t>(shape.vocab));
    Floats logits = draw.Normal(shape.rows * shape.vocab, 3);
    const Tokens targets = SomeTargets(draw, shape);
    const Doubles exact = ToDoubles(logits);
    const double loss = reference::CrossEntropy(exact, targets, shape.rows, shape.vocab);
    // A sum of 20,011 terms in 64 chains: about 1e-7 · 300 of the sum at worst.
    const double bound = 1e-5 * (1 + loss);
    EXPECT_NEAR(ops->CrossEntropy(logits.data(), targets.data(), shape.rows, shape.vocab), loss,
                bound);
    EXPECT_EQ(ToDoubles(logits), exact);
    EXPECT_NEAR(
        ops->CrossEntropyBackward(logits.data(), targets.data(), 0.125f, shape.rows, shape.vocab),
        loss, bound);
    ExpectClose(logits,
                reference::CrossEntropyGradient(exact, targets, 0.125, shape.rows, shape.vocab),
                kFloatTolerance, "dlogits");
  }
}

// Padded vocabulary columns are −inf: no weight, no gradient.
TEST(CrossEntropy, TakesMinusInfinityAsNoChance) {
  const auto ops = MakeCpuOps(1);
  Floats logits(37, -std::numeric_limits<float>::infinity());
  logits[3] = logits[20] = 1;
  const Tokens targets = {20};
  EXPECT_NEAR(ops->CrossEntropyBackward(logits.data(), targets.data(), 1, 1, 37), std::log(2.0),
              1e-7);
  for (size_t i = 0; i < 37; ++i) {
    EXPECT_EQ(logits[i], i == 3 ? 0.5f : i == 20 ? -0.5f : 0.0f) << i;
  }
}

TEST(CrossEntropy, StandsLargeLogits) {
  const auto ops = MakeCpuOps(1);
  Floats logits = {1e30f, -1e30f, 1e30f};
  const Tokens targets = {0};
  EXPECT_NEAR(ops->CrossEntropyBackward(logits.data(), targets.data(), 1, 1, 3), std::log(2.0),
              1e-7);
  EXPECT_EQ(logits, Floats({-0.5f, 0, 0.5f}));
}

// F15: a NaN anywhere in a row that counts makes the loss NaN.
TEST(CrossEntropy, ShowsNaN) {
  const auto ops = MakeCpuOps(1);
  for (size_t at = 0; at < 41; ++at) {
    Floats logits(41, 0.5f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const Tokens targets = {7};
    EXPECT_TRUE(std::isnan(ops->CrossEntropy(logits.data(), targets.data(), 1, 41))) << at;
    EXPECT_TRUE(std::isnan(ops->CrossEntropyBackward(logits.data(), targets.data(), 1, 1, 41)))
        << at;
  }
}

}  // namespace
}  // namespace sherd
