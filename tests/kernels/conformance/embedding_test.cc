#include <gtest/gtest.h>

#include "tests/kernels/conformance/tested_ops.h"
#include "tests/kernels/values.h"

namespace sherd {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

struct EmbeddingShape {
  int64_t batch, tokens, channels, vocab, context;
};
constexpr EmbeddingShape kShapes[] = {
    {1, 1, 1, 1, 1}, {2, 3, 5, 4, 3}, {3, 40, 33, 1500, 41}, {2, 9, 16, 2, 100}, {0, 4, 3, 5, 6}};

TEST(Embedding, ForwardIsTheReferenceRoundedOnce) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [batch, tokens, channels, vocab, context] : kShapes) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(vocab));
      const Tokens ids = draw.Below(static_cast<int32_t>(vocab), batch * tokens);
      const Stored wte(draw.Normal(vocab * channels), dtype);
      const Stored wpe(draw.Normal(context * channels), dtype);
      const int64_t rows = batch * tokens;
      Floats x(static_cast<size_t>(rows * channels));
      ops->EmbeddingForward(ids.data(), wte.param(), 0, vocab, x.data(), rows, channels);
      EXPECT_EQ(ToDoubles(x),
                reference::EmbeddingForward(ids, wte.values(), Doubles(wpe.values().size()), batch,
                                            tokens, channels));
      Floats y(x.size());
      ops->PositionForward(x.data(), wpe.param(), y.data(), 0, rows, tokens, channels);
      const Doubles expected =
          reference::EmbeddingForward(ids, wte.values(), wpe.values(), batch, tokens, channels);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<float>(expected[i]));
      ops->PositionForward(x.data(), wpe.param(), x.data(), 0, rows, tokens, channels);
      EXPECT_TRUE(SameBits(x, y));
    }
  }
}

// A vocabulary of 11 in parts of `stored` rows, the last of them partly or wholly padding: each row
// is found in one part and is zero in all others, and gradients come to the part that has the
// token.
TEST(Embedding, PartsOfTheVocabularyMakeTheWhole) {
  constexpr int64_t kVocab = 11, kRows = 23, kChannels = 5;
  const auto ops = MakeTestedOps(2);
  Draw draw(4);
  const Tokens ids = draw.Below(kVocab, kRows);
  const Floats dx = draw.Normal(kRows * kChannels);
  for (const int64_t stored : {1, 3, 4, 6, 11}) {
    Floats wte = draw.Normal(kVocab * kChannels);
    const Floats whole = wte;
    wte.resize(static_cast<size_t>(4 * kVocab * kChannels));
    Floats sums(static_cast<size_t>(kRows * kChannels));
    Doubles dwte;
    for (int64_t first = 0; first < kVocab + stored; first += stored) {
      const auto begin = wte.begin() + first * kChannels;
      const Stored part(Floats(begin, begin + stored * kChannels), DType::kF32);
      Floats x(sums.size(), 7.0f);
      ops->EmbeddingForward(ids.data(), part.param(), first, stored, x.data(), kRows, kChannels);
      for (size_t i = 0; i < x.size(); ++i) sums[i] += x[i];
      Stored gradient = Stored::Unset(stored * kChannels, DType::kF32);
      ops->EmbeddingBackward(ids.data(), dx.data(), gradient.grad(false), first, stored, kRows,
                             kChannels);
      const Doubles values = gradient.values();
      dwte.insert(dwte.end(), values.begin(), values.end());
    }
    const Doubles none(kRows * kChannels);
    EXPECT_EQ(ToDoubles(sums),
              reference::EmbeddingForward(ids, ToDoubles(whole), none, 1, kRows, kChannels));
    Doubles expected =
        reference::EmbeddingBackward(ids, ToDoubles(dx), 1, kRows, kChannels, kVocab, kRows).dwte;
    expected.resize(dwte.size());
    ExpectClose(dwte, expected, kFloatTolerance, "dwte");
  }
}

// Ranges of rows that begin and end inside a sequence.
TEST(Position, PartsOfTheRowsMakeTheWhole) {
  constexpr int64_t kBatch = 4, kTokens = 6, kChannels = 3, kContext = 7, kRows = kBatch * kTokens;
  const auto ops = MakeTestedOps(2);
  Draw draw(5);
  const Floats x = draw.Normal(kRows * kChannels);
  const Stored wpe(draw.Normal(kContext * kChannels), DType::kF32);
  Floats whole(x.size());
  ops->PositionForward(x.data(), wpe.param(), whole.data(), 0, kRows, kTokens, kChannels);
  const Doubles dwpe = reference::EmbeddingBackward(Tokens(kRows), ToDoubles(x), kBatch, kTokens,
                                                    kChannels, 1, kContext)
                           .dwpe;
  for (const int64_t rows : {1, 4, 8, 12, 24}) {
    Floats parts(x.size());
    Doubles sums(dwpe.size());
    for (int64_t first = 0; first < kRows; first += rows) {
      const int64_t at = first * kChannels;
      ops->PositionForward(&x[at], wpe.param(), &parts[at], first, rows, kTokens, kChannels);
      Stored gradient = Stored::Unset(kContext * kChannels, DType::kF32);
      ops->PositionBackward(&x[at], gradient.grad(false), first, rows, kTokens, kChannels,
                            kContext);
      const Doubles values = gradient.values();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
    }
    EXPECT_TRUE(SameBits(parts, whole)) << rows;
    ExpectClose(sums, dwpe, kFloatTolerance, "dwpe");
  }
}

TEST(Embedding, BackwardIsTheReferenceAndAccumulates) {
  const auto ops = MakeTestedOps(2);
  for (const auto& [batch, tokens, channels, vocab, context] : kShapes) {
    for (const DType dtype : kTypes) {
      for (const bool accumulate : {false, true}) {
        Draw draw(static_cast<uint32_t>(vocab));
        const int64_t rows = batch * tokens;
        const Tokens ids = draw.Below(static_cast<int32_t>(vocab), rows);
        const Floats dx = draw.Normal(rows * channels);
        auto expected = reference::EmbeddingBackward(ids, ToDoubles(dx), batch, tokens, channels,
                                                     vocab, context);
        Stored dwte(draw.Normal(vocab * channels), dtype);
        Stored dwpe(draw.Normal(context * channels), dtype);
        if (accumulate) {
          const Doubles wte_before = dwte.values(), wpe_before = dwpe.values();
          for (size_t i = 0; i < wte_before.size(); ++i) expected.dwte[i] += wte_before[i];
          for (size_t i = 0; i < wpe_before.size(); ++i) expected.dwpe[i] += wpe_before[i];
        }
        ops->EmbeddingBackward(ids.data(), dx.data(), dwte.grad(accumulate), 0, vocab, rows,
                               channels);
        ops->PositionBackward(dx.data(), dwpe.grad(accumulate), 0, rows, tokens, channels, context);
        ExpectClose(dwte.values(), expected.dwte, ToleranceOf(dtype), "dwte");
        ExpectClose(dwpe.values(), expected.dwpe, ToleranceOf(dtype), "dwpe");
      }
    }
  }
}

}  // namespace
}  // namespace sherd
