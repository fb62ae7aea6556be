#include <gtest/gtest.h>

#include "kernels/cpu/cpu_ops.h"
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
  const auto ops = MakeCpuOps(2);
  for (const auto& [batch, tokens, channels, vocab, context] : kShapes) {
    for (const DType dtype : kTypes) {
      Draw draw(static_cast<uint32_t>(vocab));
      const Tokens ids = draw.Below(static_cast<int32_t>(vocab), batch * tokens);
      const Stored wte(draw.Normal(vocab * channels), dtype);
      const Stored wpe(draw.Normal(context * channels), dtype);
      Floats x(static_cast<size_t>(batch * tokens * channels));
      ops->EmbeddingForward(ids.data(), wte.param(), wpe.param(), x.data(), batch, tokens,
                            channels);
      const Doubles expected =
          reference::EmbeddingForward(ids, wte.values(), wpe.values(), batch, tokens, channels);
      for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], static_cast<float>(expected[i]));
    }
  }
}

TEST(Embedding, NeedsNoPositions) {
  const auto ops = MakeCpuOps(2);
  Draw draw(9);
  const Tokens ids = draw.Below(7, 2 * 3);
  const Stored wte(draw.Normal(7 * 5), DType::kBF16);
  Floats x(2 * 3 * 5);
  ops->EmbeddingForward(ids.data(), wte.param(), {nullptr, DType::kF32}, x.data(), 2, 3, 5);
  EXPECT_EQ(ToDoubles(x), reference::EmbeddingForward(ids, wte.values(), Doubles(3 * 5), 2, 3, 5));
  Stored dwte = Stored::Unset(7 * 5, DType::kF32);
  ops->EmbeddingBackward(ids.data(), x.data(), dwte.grad(false), {nullptr, DType::kF32, false}, 2,
                         3, 5, 7, 3);
  ExpectClose(dwte.values(), reference::EmbeddingBackward(ids, ToDoubles(x), 2, 3, 5, 7, 3).dwte,
              kFloatTolerance, "dwte");
}

TEST(Embedding, BackwardIsTheReferenceAndAccumulates) {
  const auto ops = MakeCpuOps(2);
  for (const auto& [batch, tokens, channels, vocab, context] : kShapes) {
    for (const DType dtype : kTypes) {
      for (const bool accumulate : {false, true}) {
        Draw draw(static_cast<uint32_t>(vocab));
        const Tokens ids = draw.Below(static_cast<int32_t>(vocab), batch * tokens);
        const Floats dx = draw.Normal(batch * tokens * channels);
        auto expected = reference::EmbeddingBackward(ids, ToDoubles(dx), batch, tokens, channels,
                                                     vocab, context);
        Stored dwte(draw.Normal(vocab * channels), dtype);
        Stored dwpe(draw.Normal(context * channels), dtype);
        if (accumulate) {
          const Doubles wte_before = dwte.values(), wpe_before = dwpe.values();
          for (size_t i = 0; i < wte_before.size(); ++i) expected.dwte[i] += wte_before[i];
          for (size_t i = 0; i < wpe_before.size(); ++i) expected.dwpe[i] += wpe_before[i];
        }
        ops->EmbeddingBackward(ids.data(), dx.data(), dwte.grad(accumulate), dwpe.grad(accumulate),
                               batch, tokens, channels, vocab, context);
        ExpectClose(dwte.values(), expected.dwte, ToleranceOf(dtype), "dwte");
        ExpectClose(dwpe.values(), expected.dwpe, ToleranceOf(dtype), "dwpe");
      }
    }
  }
}

}  // namespace
}  // namespace sherd
