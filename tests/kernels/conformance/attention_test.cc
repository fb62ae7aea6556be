#include <gtest/gtest.h>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

// One token, less than a block, blocks of queries and of keys with and without remainders, odd
// heads.
// Also heads that share keys and values: two, all, and an odd number of them.
constexpr AttentionShape kShapes[] = {{1, 1, 1, 1, 1},    {2, 2, 3, 3, 5},    {1, 7, 2, 2, 16},
                                      {3, 64, 1, 1, 8},   {1, 65, 2, 2, 33},  {2, 130, 2, 2, 3},
                                      {1, 256, 1, 1, 64}, {1, 300, 2, 2, 17}, {1, 577, 1, 1, 4},
                                      {0, 5, 2, 2, 3},    {1, 1, 3, 1, 1},    {2, 7, 4, 2, 5},
                                      {1, 65, 4, 1, 33},  {2, 130, 6, 2, 16}, {1, 300, 9, 3, 7}};

int64_t QkvElements(const AttentionShape& shape) {
  return shape.batch * shape.tokens * shape.qkv_channels();
}
int64_t Rows(const AttentionShape& shape) { return shape.batch * shape.tokens * shape.heads; }

TEST(Attention, ForwardIsTheReference) {
  const auto ops = MakeTestedOps(2);
  for (const AttentionShape& shape : kShapes) {
    const Floats qkv = Draw(1).Normal(QkvElements(shape), 2);
    Floats out(static_cast<size_t>(Rows(shape) * shape.head_size));
    Floats lse(static_cast<size_t>(Rows(shape)));
    ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
    const auto expected = reference::AttentionForward(ToDoubles(qkv), shape);
    ExpectClose(out, expected.out, kFloatTolerance, "out");
    ExpectClose(lse, expected.lse, kFloatTolerance, "lse");
  }
}

TEST(Attention, BackwardIsTheReference) {
  const auto ops = MakeTestedOps(2);
  for (const AttentionShape& shape : kShapes) {
    Draw draw(2);
    const Floats qkv = draw.Normal(QkvElements(shape));
    const Floats dout = draw.Normal(Rows(shape) * shape.head_size);
    Floats out(dout.size());
    Floats lse(static_cast<size_t>(Rows(shape)));
    ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
    Floats dqkv(qkv.size(), std::numeric_limits<float>::quiet_NaN());
    ops->AttentionBackward(dout.data(), qkv.data(), out.data(), lse.data(), dqkv.data(), shape);
    ExpectClose(dqkv, reference::AttentionBackward(ToDoubles(dout), ToDoubles(qkv), shape),
                kFloatTolerance, "dqkv");
  }
}

// F4: a head that has keys and values of its own computes what it computes beside others, so
// repeating shared heads gives the same bits, and their gradients sum up.
TEST(Attention, SharedHeadsAreRepeatedHeads) {
  const auto ops = MakeTestedOps(2);
  const AttentionShape shared{.batch = 2, .tokens = 70, .heads = 6, .kv_heads = 2, .head_size = 9};
  AttentionShape repeated = shared;
  repeated.kv_heads = 6;
  Draw draw(5);
  const Floats qkv = draw.Normal(QkvElements(shared));
  Floats wide(static_cast<size_t>(QkvElements(repeated)));
  // The head of shared.qkv that a head of repeated.qkv copies.
  const auto source = [&](int64_t slot) {
    if (slot < 6) return slot;
    return slot < 12 ? 6 + (slot - 6) / 3 : 8 + (slot - 12) / 3;
  };
  const auto each = [&](const auto& visit) {
    for (int64_t n = 0; n < 2 * 70; ++n) {
      for (int64_t slot = 0; slot < 18; ++slot) {
        for (int64_t d = 0; d < 9; ++d) {
          visit(static_cast<size_t>((n * 18 + slot) * 9 + d),
                static_cast<size_t>((n * 10 + source(slot)) * 9 + d));
        }
      }
    }
  };
  each([&](size_t to, size_t from) { wide[to] = qkv[from]; });
  const size_t out_size = static_cast<size_t>(Rows(shared) * 9);
  Floats out(out_size), wide_out(out_size);
  Floats lse(static_cast<size_t>(Rows(shared))), wide_lse(lse.size());
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shared);
  ops->AttentionForward(wide.data(), wide_out.data(), wide_lse.data(), repeated);
  EXPECT_TRUE(SameBits(out, wide_out));
  EXPECT_TRUE(SameBits(lse, wide_lse));
  const Floats dout = draw.Normal(Rows(shared) * 9);
  Floats dqkv(qkv.size()), wide_dqkv(wide.size());
  ops->AttentionBackward(dout.data(), qkv.data(), out.data(), lse.data(), dqkv.data(), shared);
  ops->AttentionBackward(dout.data(), wide.data(), out.data(), lse.data(), wide_dqkv.data(),
                         repeated);
  Doubles sums(qkv.size());
  each([&](size_t from, size_t to) { sums[to] += wide_dqkv[from]; });
  ExpectClose(dqkv, sums, kFloatTolerance, "dqkv");
}

// A query's output does not change when later tokens do.
TEST(Attention, IsCausalToTheBit) {
  const auto ops = MakeTestedOps(2);
  const AttentionShape shape{1, 150, 2, 2, 8};
  Floats qkv = Draw(3).Normal(QkvElements(shape));
  Floats out(static_cast<size_t>(Rows(shape) * 8)), lse(static_cast<size_t>(Rows(shape)));
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  const Floats before(out.begin(), out.begin() + 100 * 2 * 8);
  for (size_t i = 100 * 3 * 2 * 8; i < qkv.size(); ++i) qkv[i] = 1e30f;
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  EXPECT_TRUE(SameBits(Floats(out.begin(), out.begin() + 100 * 2 * 8), before));
}

// Scores of several hundred would overflow exp without the running maximum.
TEST(Attention, StandsLargeScores) {
  const auto ops = MakeTestedOps(1);
  const AttentionShape shape{1, 300, 1, 1, 16};
  const Floats qkv = Draw(4).Normal(QkvElements(shape), 20);
  Floats out(static_cast<size_t>(Rows(shape) * 16)), lse(static_cast<size_t>(Rows(shape)));
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  const auto expected = reference::AttentionForward(ToDoubles(qkv), shape);
  // A score of 2000 is itself good to 1e-4, and so is the weight that it makes.
  ExpectClose(out, expected.out, 1e-3, "out");
}

}  // namespace
}  // namespace sherd
