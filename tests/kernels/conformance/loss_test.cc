#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/conformance/tested_ops.h"
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

double Loss(Ops& ops, const Floats& logits, const Tokens& targets, int64_t vocab) {
  double loss = 0;
  ops.CrossEntropy(logits.data(), targets.data(), static_cast<int64_t>(targets.size()), vocab,
                   loss);
  return loss;
}

double Backward(Ops& ops, Floats& logits, const Tokens& targets, float scale, int64_t vocab,
                const LossOptions& options = {}) {
  double loss = 0;
  ops.CrossEntropyBackward(logits.data(), targets.data(), scale, options,
                           static_cast<int64_t>(targets.size()), vocab, loss);
  return loss;
}

// What a group that splits the columns evenly, the last ones padded, makes of a matrix of logits.
struct OfParts {
  double loss = 0;
  Floats gradient;  // (rows, vocab)
  bool padding_is_zero = true;
  std::vector<LogitStatistics> joined;
};

OfParts Parts(Ops& ops, const Floats& logits, const Tokens& targets, float scale, int64_t vocab,
              int members, const LossOptions& options = {}) {
  const auto rows = static_cast<int64_t>(targets.size());
  const int64_t columns = (vocab + members - 1) / members;
  std::vector<LogitStatistics> statistics(static_cast<size_t>(members * rows));
  std::vector<Floats> of_members;
  std::vector<VocabularyPart> parts;
  for (int member = 0; member < members; ++member) {
    const int64_t first = std::min(member * columns, vocab);
    const int64_t count = std::min(columns, vocab - first);
    parts.push_back({first, count, columns, vocab});
    // Padding holds what it likes.
    Floats& own = of_members.emplace_back(static_cast<size_t>(rows * columns), 1e30f);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(&logits[static_cast<size_t>(row * vocab)] + first, count,
                  own.data() + row * columns);
    }
    ops.VocabularyStatistics(own.data(), targets.data(), parts.back(),
                             statistics.data() + member * rows, rows);
  }
  OfParts result;
  result.gradient.resize(logits.size());
  result.joined.resize(targets.size());
  ops.JoinStatistics(statistics.data(), members, targets.data(), result.joined.data(), rows,
                     result.loss);
  for (int member = 0; member < members; ++member) {
    Floats& own = of_members[static_cast<size_t>(member)];
    const VocabularyPart& part = parts[static_cast<size_t>(member)];
    ops.VocabularyGradient(own.data(), targets.data(), part, statistics.data() + member * rows,
                           result.joined.data(), scale, options, rows);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = own.data() + row * columns;
      std::copy_n(from, part.count,
                  &result.gradient[static_cast<size_t>(row * vocab)] + part.first);
      for (int64_t i = part.count; i < columns; ++i) result.padding_is_zero &= from[i] == 0;
    }
  }
  return result;
}

TEST(CrossEntropy, LossAndGradientAreTheReference) {
  const auto ops = MakeTestedOps(2);
  for (const LossShape& shape : kShapes) {
    Draw draw(static_cast<uint32_t>(shape.vocab));
    Floats logits = draw.Normal(shape.rows * shape.vocab, 3);
    const Tokens targets = SomeTargets(draw, shape);
    const Doubles exact = ToDoubles(logits);
    const double loss = reference::CrossEntropy(exact, targets, shape.rows, shape.vocab);
    // A sum of 20,011 terms in 64 chains: about 1e-7 · 300 of the sum at worst.
    const double bound = 1e-5 * (1 + loss);
    EXPECT_NEAR(Loss(*ops, logits, targets, shape.vocab), loss, bound);
    EXPECT_EQ(ToDoubles(logits), exact);
    EXPECT_NEAR(Backward(*ops, logits, targets, 0.125f, shape.vocab), loss, bound);
    ExpectClose(logits,
                reference::CrossEntropyGradient(exact, targets, 0.125, shape.rows, shape.vocab),
                kFloatTolerance, "dlogits");
  }
}

// Also where a part is all padding, or holds no row's target.
TEST(CrossEntropy, PartsOfTheVocabularyMakeTheWhole) {
  const auto ops = MakeTestedOps(2);
  for (const LossShape& shape : kShapes) {
    for (const int members : {1, 2, 3, 4, 7}) {
      Draw draw(static_cast<uint32_t>(shape.vocab));
      const Floats logits = draw.Normal(shape.rows * shape.vocab, 3);
      const Tokens targets = SomeTargets(draw, shape);
      const Doubles exact = ToDoubles(logits);
      const double loss = reference::CrossEntropy(exact, targets, shape.rows, shape.vocab);
      const OfParts parts = Parts(*ops, logits, targets, 0.125f, shape.vocab, members);
      EXPECT_NEAR(parts.loss, loss, 1e-5 * (1 + loss)) << members;
      EXPECT_TRUE(parts.padding_is_zero);
      ExpectClose(parts.gradient,
                  reference::CrossEntropyGradient(exact, targets, 0.125, shape.rows, shape.vocab),
                  kFloatTolerance, "dlogits");
      if (members > 1) continue;
      Floats whole = logits;
      EXPECT_EQ(parts.loss, Backward(*ops, whole, targets, 0.125f, shape.vocab));
      EXPECT_TRUE(SameBits(parts.gradient, whole));
    }
  }
}

// The loss that is told stays that of the tokens. Padding takes no part in smoothing: the shares of
// the whole vocabulary's entries alone make up the part that is spread.
TEST(CrossEntropy, OptionsMakeTheGradientThatOfTheObjective) {
  const auto ops = MakeTestedOps(2);
  for (const LossShape& shape : kShapes) {
    for (const LossOptions& options :
         {LossOptions{.z_loss = 0.02}, LossOptions{.label_smoothing = 0.3},
          LossOptions{.z_loss = 0.01, .label_smoothing = 0.1}}) {
      Draw draw(static_cast<uint32_t>(shape.vocab) + 1);
      const Floats logits = draw.Normal(shape.rows * shape.vocab, 3);
      const Tokens targets = SomeTargets(draw, shape);
      const Doubles expected = reference::CrossEntropyGradient(ToDoubles(logits), targets, 0.125,
                                                               shape.rows, shape.vocab, options);
      Floats plain = logits, whole = logits;
      const double loss = Backward(*ops, plain, targets, 0.125f, shape.vocab);
      EXPECT_EQ(Backward(*ops, whole, targets, 0.125f, shape.vocab, options), loss);
      ExpectClose(whole, expected, kFloatTolerance, "dlogits");
      for (const int members : {1, 3, 4}) {
        const OfParts parts = Parts(*ops, logits, targets, 0.125f, shape.vocab, members, options);
        EXPECT_NEAR(parts.loss, loss, 1e-5 * (1 + loss)) << members;
        EXPECT_TRUE(parts.padding_is_zero);
        ExpectClose(parts.gradient, expected, kFloatTolerance, "dlogits of parts");
      }
    }
  }
}

TEST(CrossEntropy, StatisticsAreThoseOfEveryRow) {
  const auto ops = MakeTestedOps(2);
  constexpr int64_t kRows = 9, kVocab = 50;
  Draw draw(6);
  const Floats logits = draw.Normal(kRows * kVocab, 4);
  const Tokens targets = draw.Below(kVocab, kRows);
  const OfParts parts = Parts(*ops, logits, targets, 1, kVocab, 4);
  for (int64_t row = 0; row < kRows; ++row) {
    const float* of_row = &logits[static_cast<size_t>(row * kVocab)];
    const float highest = *std::max_element(of_row, of_row + kVocab);
    double sum = 0;
    for (int64_t v = 0; v < kVocab; ++v) sum += std::exp(double{of_row[v]} - double{highest});
    const LogitStatistics& joined = parts.joined[static_cast<size_t>(row)];
    EXPECT_EQ(joined.highest, highest);
    EXPECT_NEAR(joined.sum, sum, 1e-6 * sum);
    EXPECT_EQ(joined.target, of_row[targets[static_cast<size_t>(row)]]);
  }
}

// In chunks of rows as at once, bit for bit: losses are added up in row order.
TEST(CrossEntropy, ChunksOfRowsMakeTheWhole) {
  const auto ops = MakeTestedOps(2);
  constexpr int64_t kRows = 67, kVocab = 130;
  Draw draw(8);
  const Floats logits = draw.Normal(kRows * kVocab, 3);
  const Tokens targets = SomeTargets(draw, {kRows, kVocab});
  Floats whole = logits, chunked = logits;
  const double loss = Backward(*ops, whole, targets, 0.5f, kVocab);
  double of_chunks = 0, evaluated = 0;
  for (int64_t first = 0; first < kRows; first += 20) {
    const int64_t rows = std::min<int64_t>(20, kRows - first);
    ops->CrossEntropy(&logits[first * kVocab], &targets[first], rows, kVocab, evaluated);
    ops->CrossEntropyBackward(&chunked[first * kVocab], &targets[first], 0.5f, {}, rows, kVocab,
                              of_chunks);
  }
  EXPECT_EQ(of_chunks, loss);
  EXPECT_EQ(evaluated, loss);
  EXPECT_TRUE(SameBits(chunked, whole));
}

// Padded vocabulary columns are −inf: no weight, no gradient.
TEST(CrossEntropy, TakesMinusInfinityAsNoChance) {
  const auto ops = MakeTestedOps(1);
  Floats logits(37, -std::numeric_limits<float>::infinity());
  logits[3] = logits[20] = 1;
  const Tokens targets = {20};
  EXPECT_NEAR(Backward(*ops, logits, targets, 1, 37), std::log(2.0), 1e-7);
  for (size_t i = 0; i < 37; ++i) {
    EXPECT_EQ(logits[i], i == 3 ? 0.5f : i == 20 ? -0.5f : 0.0f) << i;
  }
}

// A part whose logits are all −inf has no share either.
TEST(CrossEntropy, TakesAPartOfMinusInfinityAsNoChance) {
  const auto ops = MakeTestedOps(1);
  Floats logits(8, -std::numeric_limits<float>::infinity());
  logits[0] = logits[1] = 1;
  const OfParts parts = Parts(*ops, logits, {1}, 1, 8, 4);
  EXPECT_NEAR(parts.loss, std::log(2.0), 1e-7);
  EXPECT_EQ(parts.gradient, Floats({0.5f, -0.5f, 0, 0, 0, 0, 0, 0}));
}

TEST(CrossEntropy, StandsLargeLogits) {
  const auto ops = MakeTestedOps(1);
  Floats logits = {1e30f, -1e30f, 1e30f};
  const Tokens targets = {0};
  EXPECT_NEAR(Backward(*ops, logits, targets, 1, 3), std::log(2.0), 1e-7);
  EXPECT_EQ(logits, Floats({-0.5f, 0, 0.5f}));
}

// F15: a NaN anywhere in a row that counts makes the loss NaN.
TEST(CrossEntropy, ShowsNaN) {
  const auto ops = MakeTestedOps(1);
  for (size_t at = 0; at < 41; ++at) {
    Floats logits(41, 0.5f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    const Tokens targets = {7};
    EXPECT_TRUE(std::isnan(Loss(*ops, logits, targets, 41))) << at;
    EXPECT_TRUE(std::isnan(Parts(*ops, logits, targets, 1, 41, 3).loss)) << at;
    EXPECT_TRUE(std::isnan(Backward(*ops, logits, targets, 1, 41))) << at;
  }
}

}  // namespace
}  // namespace sherd
