#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

struct LinearShape {
  int64_t rows, in, out;
};

std::vector<LinearShape> Shapes() {
  std::vector<LinearShape> shapes = {
      {1, 1, 1},
      {1, 3, 2},
      {257, 1, 1},
      {2, 1, 300},
      // more than one tile each way, and an inner dimension of more than one panel
      {260, 2051, 19},
      {33, 19, 2051},
      {2051, 19, 33},
      {300, 40, 290},
  };
  Draw draw(11);
  for (int i = 0; i < 8; ++i) {
    shapes.push_back({draw.Between(1, 70), draw.Between(1, 70), draw.Between(1, 70)});
  }
  return shapes;
}

TEST(Linear, ForwardIsTheReference) {
  const auto ops = MakeCpuOps(2);
  for (const auto& [rows, in, out] : Shapes()) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(rows + in + out));
      const Floats x = draw.Normal(rows * in);
      const Stored w(draw.Normal(out * in), dtype);
      const Stored bias(draw.Normal(out), dtype);
      Floats y(static_cast<size_t>(rows * out));
      ops->LinearForward(x.data(), w.param(), bias.param(), y.data(), rows, in, out);
      ExpectClose(y,
                  reference::LinearForward(ToDoubles(x), w.values(), bias.values(), rows, in, out),
                  kFloatTolerance, "y");
      ops->LinearForward(x.data(), w.param(), {nullptr, dtype}, y.data(), rows, in, out);
      ExpectClose(y, reference::LinearForward(ToDoubles(x), w.values(), {}, rows, in, out),
                  kFloatTolerance, "y without bias");
    }
  }
}

TEST(Linear, InputGradientIsTheReferenceAndAccumulates) {
  const auto ops = MakeCpuOps(2);
  for (const auto& [rows, in, out] : Shapes()) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(rows + in + out));
      const Floats dy = draw.Normal(rows * out);
      const Stored w(draw.Normal(out * in), dtype);
      const Doubles expected =
          reference::LinearBackward(ToDoubles(dy), Doubles(static_cast<size_t>(rows * in)),
                                    w.values(), rows, in, out)
              .dx;
      Floats dx(static_cast<size_t>(rows * in), std::numeric_limits<float>::quiet_NaN());
      ops->LinearBackwardInput(dy.data(), w.param(), dx.data(), rows, in, out, false);
      ExpectClose(dx, expected, kFloatTolerance, "dx");

      Floats sum = draw.Normal(rows * in);
      Doubles expected_sum = ToDoubles(sum);
      for (size_t i = 0; i < sum.size(); ++i) expected_sum[i] += expected[i];
      ops->LinearBackwardInput(dy.data(), w.param(), sum.data(), rows, in, out, true);
      ExpectClose(sum, expected_sum, kFloatTolerance, "accumulated dx");
    }
  }
}

// On the processor a GELU is nothing but the operation that follows.
TEST(Linear, WithGeluHasTheBitsOfBothOperations) {
  const auto ops = MakeCpuOps(2);
  for (const auto& [rows, in, out] : Shapes()) {
    Draw draw(static_cast<uint32_t>(rows + in + out));
    const Floats x = draw.Normal(rows * in), dy = draw.Normal(rows * out);
    const Stored w(draw.Normal(out * in), DType::kBF16), bias(draw.Normal(out), DType::kF32);
    Floats pre(static_cast<size_t>(rows * out)), y = pre, own_pre = pre, own_y = pre;
    ops->LinearForward(x.data(), w.param(), bias.param(), pre.data(), rows, in, out);
    ops->GeluForward(pre.data(), y.data(), rows * out);
    ops->LinearGeluForward(x.data(), w.param(), bias.param(), own_pre.data(), own_y.data(), true,
                           rows, in, out);
    EXPECT_TRUE(SameBits(own_pre, pre));
    EXPECT_TRUE(SameBits(own_y, y));
    ops->LinearGeluForward(x.data(), w.param(), bias.param(), own_pre.data(), own_y.data(), false,
                           rows, in, out);
    EXPECT_TRUE(SameBits(own_pre, pre));

    const Floats input = draw.Normal(rows * in, 2);
    Floats dx(static_cast<size_t>(rows * in)), own_dx = dx;
    ops->LinearBackwardInput(dy.data(), w.param(), dx.data(), rows, in, out, false);
    ops->GeluBackward(dx.data(), input.data(), dx.data(), rows * in);
    ops->LinearGeluBackwardInput(dy.data(), w.param(), input.data(), own_dx.data(), rows, in, out);
    EXPECT_TRUE(SameBits(own_dx, dx));
  }
}

TEST(Linear, WeightGradientIsTheReferenceRoundedOnceAndAccumulates) {
  const auto ops = MakeCpuOps(2);
  for (const auto& [rows, in, out] : Shapes()) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(rows + in + out));
      const Floats dy = draw.Normal(rows * out);
      const Floats x = draw.Normal(rows * in);
      const auto expected = reference::LinearBackward(
          ToDoubles(dy), ToDoubles(x), Doubles(static_cast<size_t>(out * in)), rows, in, out);
      Stored dw = Stored::Unset(out * in, dtype);
      Stored dbias = Stored::Unset(out, dtype);
      ops->LinearBackwardWeight(dy.data(), x.data(), dw.grad(false), dbias.grad(false), rows, in,
                                out);
      ExpectClose(dw.values(), expected.dw, ToleranceOf(dtype), "dw");
      ExpectClose(dbias.values(), expected.dbias, ToleranceOf(dtype), "dbias");

      Stored sum_w(draw.Normal(out * in), dtype);
      Doubles expected_w = sum_w.values();
      for (size_t i = 0; i < expected_w.size(); ++i) expected_w[i] += expected.dw[i];
      ops->LinearBackwardWeight(dy.data(), x.data(), sum_w.grad(true), {nullptr, dtype, false},
                                rows, in, out);
      ExpectClose(sum_w.values(), expected_w, ToleranceOf(dtype), "accumulated dw");

      // The bias alone has the same bits.
      Stored alone = Stored::Unset(out, dtype);
      ops->BiasBackward(dy.data(), alone.grad(false), rows, out);
      EXPECT_EQ(alone, dbias);
      ops->LinearBackwardWeight(dy.data(), x.data(), dw.grad(false), dbias.grad(true), rows, in,
                                out);
      ops->BiasBackward(dy.data(), alone.grad(true), rows, out);
      EXPECT_EQ(alone, dbias);
    }
  }
}

// The sum in fp32 is added before the one rounding: 256 + (1 + 2^-9) is nearest to 258; rounded
// first, the sum is 1, and 257 goes to the even 256.
TEST(Linear, AccumulatesBeforeRounding) {
  const auto ops = MakeCpuOps(1);
  Stored dw({256}, DType::kBF16);
  Stored dbias({256}, DType::kBF16);
  const Floats dy = {1, 0x1p-9f};
  const Floats x = {1, 1};
  ops->LinearBackwardWeight(dy.data(), x.data(), dw.grad(true), dbias.grad(true), 2, 1, 1);
  EXPECT_EQ(dw.values()[0], 258);
  EXPECT_EQ(dbias.values()[0], 258);
}

TEST(Linear, NoRowsMakeZeroGradientsAndTouchNothingElse) {
  const auto ops = MakeCpuOps(2);
  const Stored w(Draw(1).Normal(6), DType::kBF16);
  ops->LinearForward(nullptr, w.param(), {nullptr, DType::kF32}, nullptr, 0, 2, 3);
  ops->LinearBackwardInput(nullptr, w.param(), nullptr, 0, 2, 3, false);
  for (const DType dtype : kTypes) {
    Stored dw = Stored::Unset(6, dtype);
    Stored dbias = Stored::Unset(3, dtype);
    ops->LinearBackwardWeight(nullptr, nullptr, dw.grad(false), dbias.grad(false), 0, 2, 3);
    EXPECT_EQ(dw.values(), Doubles(6));
    EXPECT_EQ(dbias.values(), Doubles(3));
    Stored sum(Draw(2).Normal(6), dtype);
    const Stored before = sum;
    ops->LinearBackwardWeight(nullptr, nullptr, sum.grad(true), dbias.grad(true), 0, 2, 3);
    EXPECT_EQ(sum, before);
    EXPECT_EQ(dbias.values(), Doubles(3));
  }
}

}  // namespace
}  // namespace sherd
