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

TEST(LayerNorm, ForwardIsTheReference) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, channels] : kCases) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(rows * channels));
      const Floats x = draw.Normal(rows * channels, 2, 1);
      const Stored w(draw.Normal(channels), dtype);
      const Stored b(draw.Normal(channels), dtype);
      Floats y(x.size()), mean(static_cast<size_t>(rows)), rstd(static_cast<size_t>(rows));
      ops->LayerNormForward(x.data(), w.param(), b.param(), y.data(), mean.data(), rstd.data(),
                            rows, channels);
      ExpectClose(y,
                  reference::LayerNormForward(ToDoubles(x), w.values(), b.values(), rows, channels),
                  kFloatTolerance, "y");
    }
  }
}

// Two passes: the variance of values far from zero does not cancel. The mean itself is good to
// 1e-7 of 1000, that is 1e-4 of the deviation.
TEST(LayerNorm, SurvivesALargeMean) {
  const auto ops = MakeTestedOps(1);
  const Floats x = Draw(1).Normal(768, 1, 1000);
  const Stored w(Floats(768, 1), DType::kF32);
  const Stored b(Floats(768, 0), DType::kF32);
  Floats y(768), mean(1), rstd(1);
  ops->LayerNormForward(x.data(), w.param(), b.param(), y.data(), mean.data(), rstd.data(), 1, 768);
  ExpectClose(y, reference::LayerNormForward(ToDoubles(x), w.values(), b.values(), 1, 768), 2e-4,
              "y");
}

struct Gradients {
  Floats dx;
  Stored dw, db;
};

TEST(LayerNorm, BackwardIsTheReferenceAndAccumulates) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [rows, channels] : kCases) {
    for (const DType dtype : kTypes) {
      for (const bool accumulate : {false, true}) {
        Draw draw(static_cast<uint32_t>(rows * channels));
        const Floats x = draw.Normal(rows * channels, 2, 1);
        const Floats dy = draw.Normal(rows * channels);
        const Stored w(draw.Normal(channels), dtype);
        const Stored b(draw.Normal(channels), dtype);
        Floats y(x.size()), mean(static_cast<size_t>(rows)), rstd(static_cast<size_t>(rows));
        ops->LayerNormForward(x.data(), w.param(), b.param(), y.data(), mean.data(), rstd.data(),
                              rows, channels);
        auto expected =
            reference::LayerNormBackward(ToDoubles(dy), ToDoubles(x), w.values(), rows, channels);
        Gradients got{draw.Normal(rows * channels), Stored(draw.Normal(channels), dtype),
                      Stored(draw.Normal(channels), dtype)};
        if (accumulate) {
          for (size_t i = 0; i < got.dx.size(); ++i) expected.dx[i] += got.dx[i];
          for (size_t i = 0; i < expected.dw.size(); ++i) {
            expected.dw[i] += got.dw.values()[i];
            expected.db[i] += got.db.values()[i];
          }
        }
        ops->LayerNormBackward(dy.data(), x.data(), w.param(), mean.data(), rstd.data(),
                               got.dx.data(), accumulate, got.dw.grad(accumulate),
                               got.db.grad(accumulate), rows, channels);
        // Of one or two channels the terms all but cancel.
        double terms = 0;
        for (size_t i = 0; i < dy.size(); ++i) {
          const auto row = i / static_cast<size_t>(channels);
          terms = std::max(terms, static_cast<double>(std::abs(dy[i] * rstd[row])));
        }
        ExpectClose(got.dx, expected.dx, kFloatTolerance, "dx", terms);
        ExpectClose(got.dw.values(), expected.dw, ToleranceOf(dtype), "dw");
        ExpectClose(got.db.values(), expected.db, ToleranceOf(dtype), "db");
      }
    }
  }
}

}  // namespace
}  // namespace sherd
