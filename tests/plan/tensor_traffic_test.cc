#include "plan/tensor_traffic.h"

#include <gtest/gtest.h>

namespace sherd {
namespace {

// 2 blocks of 6 channels; 8 rows are 192 bytes of fp32.
constexpr int64_t kRows = 8;
ModelShape Shape(int64_t vocab) {
  ModelShape shape;
  shape.layers = 2;
  shape.hidden = 6;
  shape.heads = shape.kv_heads = 2;
  shape.ffn = 8;
  shape.vocab = vocab;
  shape.context = 1024;
  return shape;
}

ModelPart Part(const ModelShape& shape, bool sequence) {
  return PartOf(shape, {.degree = 2, .index = 1, .sequence = sequence});
}

TEST(TensorTraffic, IsNoneInAGroupOfOne) {
  const ModelShape shape = Shape(5);
  const ModelPart part = PartOf(shape, {});
  const TensorTraffic none;
  for (int64_t unit = 0; unit < 4; ++unit) {
    EXPECT_EQ(ForwardTraffic(shape, part, unit, kRows), none);
    EXPECT_EQ(BackwardTraffic(shape, part, unit, kRows, KeptActivations::kBlockInputs), none);
  }
  EXPECT_EQ(LossTraffic(part, kRows), none);
}

// Of an all-reduce of 192 bytes one of two members sends its half of the addends and of the sums.
TEST(TensorTraffic, SumsOnceAHalfOfABlockAndPass) {
  const ModelShape shape = Shape(5);
  const ModelPart part = Part(shape, /*sequence=*/false);
  const Wire sum{192, 2};
  const auto of = [](const Wire& all_reduce) {
    TensorTraffic traffic;
    traffic.all_reduce = all_reduce;
    return traffic;
  };
  EXPECT_EQ(ForwardTraffic(shape, part, 0, kRows), of(sum));
  EXPECT_EQ(ForwardTraffic(shape, part, 1, kRows), of({384, 4}));
  EXPECT_EQ(ForwardTraffic(shape, part, 3, kRows), of({}));
  EXPECT_EQ(BackwardTraffic(shape, part, 0, kRows, KeptActivations::kEverything), of({}));
  EXPECT_EQ(BackwardTraffic(shape, part, 1, kRows, KeptActivations::kEverything), of({384, 4}));
  // 12 bytes a row of statistics beside the sum.
  TensorTraffic head = of(sum);
  head.all_gather = {96, 1};
  EXPECT_EQ(BackwardTraffic(shape, part, 3, kRows, KeptActivations::kEverything), head);
}

// A gather or a scatter sends half the rows: 96 bytes, one message.
TEST(TensorTraffic, GathersAndScattersAlongTheSequence) {
  const ModelShape shape = Shape(5);
  const ModelPart part = Part(shape, /*sequence=*/true);
  const auto of = [](int64_t gathers, int64_t scatters) {
    TensorTraffic traffic;
    traffic.all_gather = {96 * gathers, gathers};
    traffic.reduce_scatter = {96 * scatters, scatters};
    return traffic;
  };
  EXPECT_EQ(ForwardTraffic(shape, part, 0, kRows), of(0, 1));
  EXPECT_EQ(ForwardTraffic(shape, part, 1, kRows), of(2, 2));
  EXPECT_EQ(ForwardTraffic(shape, part, 3, kRows), of(1, 0));
  EXPECT_EQ(BackwardTraffic(shape, part, 0, kRows, KeptActivations::kEverything), of(1, 0));
  EXPECT_EQ(BackwardTraffic(shape, part, 1, kRows, KeptActivations::kEverything), of(4, 2));
  EXPECT_EQ(BackwardTraffic(shape, part, 3, kRows, KeptActivations::kEverything), of(1, 1));
}

TEST(TensorTraffic, RepeatsWhatIsComputedAgain) {
  const ModelShape shape = Shape(5);
  for (const bool sequence : {false, true}) {
    const ModelPart part = Part(shape, sequence);
    TensorTraffic again = BackwardTraffic(shape, part, 1, kRows, KeptActivations::kEverything);
    if (sequence) {
      again.all_gather += {2 * 96, 2};
      again.reduce_scatter += {96, 1};
    } else {
      again.all_reduce += {192, 2};
    }
    EXPECT_EQ(BackwardTraffic(shape, part, 1, kRows, KeptActivations::kBlockInputs), again);
    // The last block's are still there.
    EXPECT_EQ(BackwardTraffic(shape, part, 2, kRows, KeptActivations::kBlockInputs),
              BackwardTraffic(shape, part, 2, kRows, KeptActivations::kEverything));
  }
}

TEST(TensorTraffic, HasAMessageAChunkOfTheHead) {
  const ModelShape shape = Shape(100);
  const TensorTraffic loss = LossTraffic(Part(shape, false), 600);
  EXPECT_EQ(loss.all_gather, (Wire{600 * 12, 3}));
}

}  // namespace
}  // namespace sherd
