#include <gtest/gtest.h>

#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

// One token, less than a block, blocks of queries and of keys with and without remainders, odd
// heads.
constexpr AttentionShape kShapes[] = {
    {1, 1, 1, 1},   {2, 2, 3, 5},    {1, 7, 2, 16},   {3, 64, 1, 8},  {1, 65, 2, 33},
    {2, 130, 2, 3}, {1, 256, 1, 64}, {1, 300, 2, 17}, {1, 577, 1, 4}, {0, 5, 2, 3}};

int64_t Rows(const AttentionShape& shape) { return shape.batch * shape.tokens * shape.heads; }

TEST(Attention, ForwardIsTheReference) {
  const auto ops = MakeCpuOps(2);
  for (const AttentionShape& shape : kShapes) {
    const Floats qkv = Draw(1).Normal(3 * Rows(shape) * shape.head_size, 2);
    Floats out(static_cast<size_t>(Rows(shape) * shape.head_size));
    Floats lse(static_cast<size_t>(Rows(shape)));
    ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
    const auto expected = reference::AttentionForward(ToDoubles(qkv), shape);
    ExpectClose(out, expected.out, kFloatTolerance, "out");
    ExpectClose(lse, expected.lse, kFloatTolerance, "lse");
  }
}

TEST(Attention, BackwardIsTheReference) {
  const auto ops = MakeCpuOps(2);
  for (const AttentionShape& shape : kShapes) {
    Draw draw(2);
    const Floats qkv = draw.Normal(3 * Rows(shape) * shape.head_size);
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

// A query's output does not change when later tokens do.
TEST(Attention, IsCausalToTheBit) {
  const auto ops = MakeCpuOps(2);
  const AttentionShape shape{1, 150, 2, 8};
  Floats qkv = Draw(3).Normal(3 * Rows(shape) * 8);
  Floats out(static_cast<size_t>(Rows(shape) * 8)), lse(static_cast<size_t>(Rows(shape)));
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  const Floats before(out.begin(), out.begin() + 100 * 2 * 8);
  for (size_t i = 100 * 3 * 2 * 8; i < qkv.size(); ++i) qkv[i] = 1e30f;
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  EXPECT_TRUE(SameBits(Floats(out.begin(), out.begin() + 100 * 2 * 8), before));
}

// Scores of several hundred would overflow exp without the running maximum.
TEST(Attention, StandsLargeScores) {
  const auto ops = MakeCpuOps(1);
  const AttentionShape shape{1, 300, 1, 16};
  const Floats qkv = Draw(4).Normal(3 * Rows(shape) * 16, 20);
  Floats out(static_cast<size_t>(Rows(shape) * 16)), lse(static_cast<size_t>(Rows(shape)));
  ops->AttentionForward(qkv.data(), out.data(), lse.data(), shape);
  const auto expected = reference::AttentionForward(ToDoubles(qkv), shape);
  // A score of 2000 is itself good to 1e-4, and so is the weight that it makes.
  ExpectClose(out, expected.out, 1e-3, "out");
}

}  // namespace
}  // namespace sherd
