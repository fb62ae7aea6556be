#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

struct Case {
  int64_t rows, channels;
};
// The widest row that a job may have is more than a block of a GPU has shared memory for.
constexpr Case kCases[] = {{1, 1},    {1, 2},    {3, 17}, {70, 33},
                           {65, 384}, {2, 1000}, {0, 5},  {3, 65536}};

TEST(RmsNorm, ForwardIsTheReference) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, channels] : kCases) {
    for (const DType dtype : kTypes) {
      for (const double eps : {1e-5, 1e-6, 2.0}) {
        Draw draw(static_cast<uint32_t>(rows * channels));
        const Floats x = draw.Normal(rows * channels, 2, 1);
        const Stored w(draw.Normal(channels), dtype);
        Floats y(x.size()), rstd(static_cast<size_t>(rows));
        ops->RmsNormForward(x.data(), w.param(), eps, y.data(), rstd.data(), rows, channels);
        ExpectClose(y, reference::RmsNormForward(ToDoubles(x), w.values(), eps, rows, channels),
                    kFloatTolerance, "y");
      }
    }
  }
}

// Without eps a row of zeros would be 0 / 0, and a tiny one would blow up.
TEST(RmsNorm, EpsKeepsSmallRowsSmall) {
  const auto ops = MakeTestedOps(1);
  const Floats x = {0, 0, 0, 1e-10f, -1e-10f, 0};
  const Stored w(Floats(3, 1), DType::kF32);
  Floats y(6), rstd(2);
  ops->RmsNormForward(x.data(), w.param(), 1e-5, y.data(), rstd.data(), 2, 3);
  EXPECT_EQ(Floats(y.begin(), y.begin() + 3), Floats(3, 0));
  EXPECT_NEAR(rstd[0], 1 / std::sqrt(1e-5), 1e-3);
  EXPECT_NEAR(y[3], 1e-10 / std::sqrt(1e-5), 1e-13);
}

TEST(RmsNorm, BackwardIsTheReferenceAndAccumulates) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, channels] : kCases) {
    for (const DType dtype : kTypes) {
      for (const bool accumulate : {false, true}) {
        Draw draw(static_cast<uint32_t>(rows * channels));
        const Floats x = draw.Normal(rows * channels, 2, 1);
        const Floats dy = draw.Normal(rows * channels);
        const Stored w(draw.Normal(channels), dtype);
        Floats y(x.size()), rstd(static_cast<size_t>(rows));
        ops->RmsNormForward(x.data(), w.param(), 1e-5, y.data(), rstd.data(), rows, channels);
        auto expected = reference::RmsNormBackward(ToDoubles(dy), ToDoubles(x), w.values(), 1e-5,
                                                   rows, channels);
        Floats dx = draw.Normal(rows * channels);
        Stored dw(draw.Normal(channels), dtype);
        if (accumulate) {
          for (size_t i = 0; i < dx.size(); ++i) expected.dx[i] += dx[i];
          for (size_t i = 0; i < expected.dw.size(); ++i) expected.dw[i] += dw.values()[i];
        }
        ops->RmsNormBackward(dy.data(), x.data(), w.param(), rstd.data(), dx.data(), accumulate,
                             dw.grad(accumulate), rows, channels);
        // Of one channel the terms all but cancel.
        double terms = 0;
        for (size_t i = 0; i < dy.size(); ++i) {
          const auto row = i / static_cast<size_t>(channels);
          terms = std::max(terms, static_cast<double>(std::abs(dy[i] * rstd[row])));
        }
        ExpectClose(dx, expected.dx, kFloatTolerance, "dx", terms);
        ExpectClose(dw.values(), expected.dw, ToleranceOf(dtype), "dw");
      }
    }
  }
}

}  // namespace
}  // namespace sherd
