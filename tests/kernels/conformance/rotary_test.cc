#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

// Unscaled, and scaled as Llama 3.2 1B is; the second has frequencies on all three sides.
constexpr RotaryParams kPlain{.theta = 500};
constexpr RotaryParams kScaled{.theta = 500000,
                               .factor = 32,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_context = 8192};
constexpr AttentionShape kShapes[] = {
    {1, 1, 1, 1, 2}, {2, 5, 3, 3, 6}, {1, 17, 4, 2, 34}, {3, 33, 6, 1, 64}, {0, 3, 2, 2, 4}};

Floats Table(Ops& ops, const RotaryParams& params, int64_t tokens, int64_t head_size) {
  Floats table(static_cast<size_t>(tokens * head_size));
  ops.RotaryTable(params, table.data(), tokens, head_size);
  return table;
}

TEST(Rotary, TurnsQueriesAndKeysAndBack) {
  const auto ops = MakeTestedOps(2);
  for (const RotaryParams& params : {kPlain, kScaled}) {
    for (const AttentionShape& shape : kShapes) {
      const Floats table = Table(*ops, params, shape.tokens, shape.head_size);
      const Floats qkv = Draw(1).Normal(shape.batch * shape.tokens * shape.qkv_channels());
      for (const bool back : {false, true}) {
        Floats turned = qkv;
        if (back) {
          ops->RotaryBackward(turned.data(), table.data(), shape);
        } else {
          ops->RotaryForward(turned.data(), table.data(), shape);
        }
        // A cosine and a sine, each rounded once, and three roundings.
        ExpectClose(turned, reference::Rotary(ToDoubles(qkv), params, shape, back), 1e-6, "turned");
      }
    }
  }
}

// Angles are good to an fp32 rounding of their cosine far beyond where fp32 angles would be.
TEST(Rotary, IsAccurateAtLatePositions) {
  const auto ops = MakeTestedOps(2);
  constexpr int64_t kTokens = 131072;
  for (const RotaryParams& params : {kPlain, kScaled}) {
    const Floats table = Table(*ops, params, kTokens, 8);
    for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{8191}, kTokens - 1}) {
      for (int64_t i = 0; i < 4; ++i) {
        const double angle = static_cast<double>(t) * reference::RotaryFrequency(params, i, 8);
        EXPECT_NEAR(table[static_cast<size_t>(t * 8 + i)], std::cos(angle), 1e-7) << t << i;
        EXPECT_NEAR(table[static_cast<size_t>(t * 8 + 4 + i)], std::sin(angle), 1e-7) << t << i;
      }
    }
  }
}

// Heads of 64: pair 15 turns once in 2948 tokens, pair 20 once in 22,923, against 2048 and 8192.
TEST(Rotary, ScalesLongWavesAlone) {
  const auto turn = [](const RotaryParams& params, int64_t index) {
    return reference::RotaryFrequency(params, index, 64);
  };
  RotaryParams plain = kScaled;
  plain.factor = 1;
  EXPECT_EQ(turn(kScaled, 0), turn(plain, 0));
  EXPECT_EQ(turn(kScaled, 13), turn(plain, 13));
  EXPECT_LT(turn(kScaled, 15), turn(plain, 15));
  EXPECT_GT(turn(kScaled, 15), turn(plain, 15) / 32);
  EXPECT_EQ(turn(kScaled, 20), turn(plain, 20) / 32);
  EXPECT_EQ(turn(kScaled, 31), turn(plain, 31) / 32);
}

// What makes it a position embedding: scores depend on how far apart tokens are, not on where.
TEST(Rotary, ScoresDependOnDistancesAlone) {
  const auto ops = MakeTestedOps(1);
  const AttentionShape shape{.batch = 1, .tokens = 40, .heads = 1, .kv_heads = 1, .head_size = 16};
  Draw draw(2);
  const Floats token = draw.Normal(48);
  Floats qkv;
  for (int t = 0; t < 40; ++t) qkv.insert(qkv.end(), token.begin(), token.end());
  const Floats table = Table(*ops, kPlain, 40, 16);
  ops->RotaryForward(qkv.data(), table.data(), shape);
  const auto score = [&](size_t query, size_t key) {
    double sum = 0;
    for (size_t d = 0; d < 16; ++d) sum += double{qkv[query * 48 + d]} * qkv[key * 48 + 16 + d];
    return sum;
  };
  for (size_t distance = 0; distance < 10; ++distance) {
    for (size_t key = 0; key < 30; ++key) {
      EXPECT_NEAR(score(key + distance, key), score(distance, 0), 1e-5);
    }
  }
  EXPECT_GT(std::abs(score(9, 0) - score(0, 0)), 0.1);
}

}  // namespace
}  // namespace sherd
