#include "worker/model/vocabulary_head.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/values.h"
#include "tests/worker/model/model_harness.h"

namespace sherd {
namespace {

constexpr int64_t kChannels = 12, kVocab = 71;

ModelShape Shape(int64_t ffn) {
  ModelShape shape;
  shape.layers = 1;
  shape.hidden = kChannels;
  shape.heads = shape.kv_heads = 2;
  shape.ffn = ffn;
  shape.vocab = kVocab;
  shape.context = 1024;
  return shape;
}

TEST(HeadChunk, HoldsLogitsToAWidthOfTheBlocksOrAQuarterOfTheRows) {
  const ModelPart narrow = PartOf(Shape(/*ffn=*/71), {});
  const ModelPart wide = PartOf(Shape(/*ffn=*/70), {});
  for (const int64_t rows : {1, 255, 256, 600, 1024, 5000}) {
    EXPECT_EQ(HeadChunkRows(narrow, rows), rows);
  }
  EXPECT_EQ(HeadChunkRows(wide, 1), 1);
  EXPECT_EQ(HeadChunkRows(wide, 256), 256);
  EXPECT_EQ(HeadChunkRows(wide, 600), 256);
  EXPECT_EQ(HeadChunkRows(wide, 1024), 256);
  EXPECT_EQ(HeadChunkRows(wide, 1025), 320);
  EXPECT_EQ(HeadChunkRows(wide, 5000), 1280);
}

// A head over `rows` rows of given outputs of the last norm; targets of every kind.
struct Head {
  Head(int64_t ffn, int64_t rows, const LossOptions& options = {})
      : shape(Shape(ffn)),
        part(PartOf(shape, {})),
        activations(shape, part, 1, rows, KeptActivations::kEverything, nullptr, meter),
        stream(part, kChannels, activations, nullptr),
        head(part, shape, options, activations, *ops, stream, nullptr) {
    Draw draw(21);
    norm = draw.Normal(rows * kChannels);
    targets = draw.Below(kVocab, rows);
    for (size_t i = 1; i < targets.size(); i += 5) targets[i] = -1;
    std::copy(norm.begin(), norm.end(), activations.normed());
  }
  MicroBatch batch() const {
    return {1, static_cast<int64_t>(targets.size()), nullptr, targets.data()};
  }

  const ModelShape shape;
  const ModelPart part;
  MemoryMeter meter;
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  const Activations activations;
  ResidualStream stream;
  VocabularyHead head;
  Floats norm;
  Tokens targets;
};

TEST(VocabularyHead, LossAndGradientsAreTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Stored w(Draw(22).Normal(kVocab * kChannels), dtype);
    // One chunk by its few rows or its narrow vocabulary; two, three and four, the last ones short.
    for (const auto& [ffn, rows] :
         {std::pair<int64_t, int64_t>{8, 3}, {100, 600}, {8, 257}, {8, 600}, {8, 1111}}) {
      Head head(ffn, rows);
      const Doubles x = ToDoubles(head.norm);
      const Doubles logits = reference::LinearForward(x, w.values(), {}, rows, kChannels, kVocab);
      const double loss = reference::CrossEntropy(logits, head.targets, rows, kVocab);
      const auto expected = reference::LinearBackward(
          reference::CrossEntropyGradient(logits, head.targets, 0.5, rows, kVocab), x, w.values(),
          rows, kChannels, kVocab);

      EXPECT_NEAR(head.head.Loss(w.param(), head.batch()), loss, 1e-5 * loss);
      Stored dw = Stored::Unset(kVocab * kChannels, dtype);
      const double trained = head.head.Backward(w.param(), dw.grad(false), head.batch(), 0.5f);
      EXPECT_NEAR(trained, loss, 1e-5 * loss);
      // Rounded to bf16 after each of up to four chunks, by at most 2^-9 of the sum so far.
      const double rounding = dtype == DType::kF32 ? 0 : 4.0 / 512 * 2;
      ExpectClose(dw.values(), expected.dw, kFloatTolerance + rounding, "dw");
      const float* dx = head.stream.FinishSum();
      ExpectClose(Floats(dx, dx + rows * kChannels), expected.dx, kFloatTolerance, "dx");
    }
  }
}

// Options change the gradients, and no loss that is told; also chunk by chunk.
TEST(VocabularyHead, GradientsAreThoseOfTheObjective) {
  constexpr LossOptions kOptions = {.z_loss = 0.02, .label_smoothing = 0.2};
  const Stored w(Draw(22).Normal(kVocab * kChannels), DType::kF32);
  for (const int64_t rows : {3, 600}) {
    Head plain(/*ffn=*/8, rows);
    Head head(/*ffn=*/8, rows, kOptions);
    const Doubles x = ToDoubles(head.norm);
    const Doubles logits = reference::LinearForward(x, w.values(), {}, rows, kChannels, kVocab);
    const auto expected = reference::LinearBackward(
        reference::CrossEntropyGradient(logits, head.targets, 0.5, rows, kVocab, kOptions), x,
        w.values(), rows, kChannels, kVocab);
    Stored dw = Stored::Unset(kVocab * kChannels, DType::kF32);
    Stored plain_dw = Stored::Unset(kVocab * kChannels, DType::kF32);
    EXPECT_EQ(head.head.Loss(w.param(), head.batch()), plain.head.Loss(w.param(), plain.batch()));
    EXPECT_EQ(head.head.Backward(w.param(), dw.grad(false), head.batch(), 0.5f),
              plain.head.Backward(w.param(), plain_dw.grad(false), plain.batch(), 0.5f));
    ExpectClose(dw.values(), expected.dw, kFloatTolerance, "dw");
  }
}

TEST(VocabularyHead, EvaluationHasTheLossOfTraining) {
  const Stored w(Draw(23).Normal(kVocab * kChannels), DType::kF32);
  for (const int64_t ffn : {8, 100}) {
    Head head(ffn, 1000);
    const double evaluated = head.head.Loss(w.param(), head.batch());
    Stored dw = Stored::Unset(kVocab * kChannels, DType::kF32);
    EXPECT_EQ(evaluated, head.head.Backward(w.param(), dw.grad(false), head.batch(), 1.0f));
  }
}

// A micro-batch of three sequences goes in chunks that end inside sequences; one sequence at once.
TEST(VocabularyHead, ChunksOfABatchAddUpToItsSequences) {
  constexpr int64_t kTokens = 210;
  for (const bool tied : {false, true}) {
    ModelShape shape = Shape(/*ffn=*/8);
    shape.tie_embeddings = tied;
    ModelHarness chunked(shape, 3, kTokens);
    ModelHarness single(shape, 1, kTokens);
    chunked.Randomize(24);
    single.Randomize(24);
    const RandomBatch batch(3, kTokens, kVocab, 25);
    const double loss = chunked.Step(batch.view(), 1.0f);
    double sum = 0;
    std::vector<std::vector<double>> sums;
    for (int64_t b = 0; b < 3; ++b) {
      sum += single.Step(batch.sequence(b), 1.0f);
      size_t next = 0;
      for (const Unit& unit : single.inventory().units) {
        for (const Parameter& parameter : unit.parameters) {
          if (b == 0) sums.emplace_back(static_cast<size_t>(parameter.elements));
          const float* grad = single.grad(parameter.name);
          for (size_t i = 0; i < sums[next].size(); ++i) sums[next][i] += grad[i];
          ++next;
        }
      }
    }
    EXPECT_NEAR(loss, sum, 1e-6 * sum);
    size_t next = 0;
    for (const Unit& unit : chunked.inventory().units) {
      for (const Parameter& parameter : unit.parameters) {
        const float* grad = chunked.grad(parameter.name);
        ExpectClose(Floats(grad, grad + parameter.elements), sums[next++], kFloatTolerance,
                    parameter.name);
      }
    }
  }
}

// F16: members' activations of any shape, the arena's part of them apart.
TEST(ActivationMemory, OfAMemberIsWhatThePlanPredicts) {
  Draw draw(26);
  for (int i = 0; i < 300; ++i) {
    ModelShape shape;
    shape.arch = draw.Between(0, 1) == 0 ? Architecture::kGpt2 : Architecture::kLlama;
    shape.layers = draw.Between(1, 4);
    const int degree = 1 << draw.Between(1, 3);
    shape.heads = degree * draw.Between(1, 3);
    shape.kv_heads = shape.arch == Architecture::kGpt2 ? shape.heads
                     : draw.Between(0, 1) == 0         ? 1
                                                       : degree;
    shape.hidden = shape.heads * 2 * draw.Between(1, 9);
    shape.ffn = degree * draw.Between(1, 90);
    shape.vocab = draw.Between(1, 900);
    const int64_t batch = degree * draw.Between(1, 20);
    const int64_t tokens = draw.Between(1, 30);
    const auto kept = static_cast<KeptActivations>(draw.Between(0, 2));
    const TensorPlace place{degree, static_cast<int>(draw.Between(0, degree - 1)),
                            draw.Between(0, 1) == 1};
    const ModelPart part = PartOf(shape, place);
    const int64_t arena_bytes = TensorArenaActivationBytes(shape, part, batch, tokens, kept);
    ASSERT_EQ(arena_bytes % 64, 0);
    MemoryMeter arena_meter, meter;
    const Buffer arena(arena_meter, Pool::kComm, arena_bytes);
    {
      const Activations activations(shape, part, batch, tokens, kept, arena.data(), meter);
      EXPECT_EQ(activations.arena_bytes(), arena_bytes);
      const int64_t rotary_table =
          shape.arch == Architecture::kLlama ? tokens * shape.head_size() * 4 : 0;
      EXPECT_EQ(meter.current(Pool::kActivations) + rotary_table,
                PredictActivationBytes(shape, part, batch, tokens, kept));
    }
    EXPECT_EQ(meter.current(Pool::kActivations), 0);
  }
}

}  // namespace
}  // namespace sherd
