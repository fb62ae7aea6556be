#include <gtest/gtest.h>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

// Of one row, of a few, of several tiles of rows and of tiles of tiles; of no rows the sums are
// zero.
TEST(Bias, BackwardIsTheColumnSumsAndAccumulates) {
  struct Case {
    int64_t rows, channels;
  };
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, channels] :
       {Case{0, 5}, {1, 1}, {3, 17}, {64, 260}, {65, 33}, {700, 8}, {4200, 3}}) {
    for (const DType dtype : kTypes) {
      for (const bool accumulate : {false, true}) {
        Draw draw(static_cast<uint32_t>(rows + channels));
        const Floats dy = draw.Normal(rows * channels);
        Stored dbias(draw.Normal(channels), dtype);
        Doubles expected = accumulate ? dbias.values() : Doubles(static_cast<size_t>(channels));
        for (size_t i = 0; i < dy.size(); ++i) expected[i % static_cast<size_t>(channels)] += dy[i];
        ops->BiasBackward(dy.data(), dbias.grad(accumulate), rows, channels);
        ExpectClose(dbias.values(), expected, ToleranceOf(dtype), "dbias", 1);
      }
    }
  }
}

// The sum in fp32 is added before the one rounding: 256 + (1 + 2^-9) is nearest to 258; rounded
// first, the sum is 1, and 257 goes to the even 256.
TEST(Bias, AccumulatesBeforeRounding) {
  const auto ops = MakeTestedOps(1);
  Stored dbias({256}, DType::kBF16);
  const Floats dy = {1, 0x1p-9f};
  ops->BiasBackward(dy.data(), dbias.grad(true), 2, 1);
  EXPECT_EQ(dbias.values()[0], 258);
}

}  // namespace
}  // namespace sherd
