#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "plan/activations.h"
#include "plan/scratch.h"
#include "tests/worker/model/model_harness.h"

namespace sherd {
namespace {

struct Variant {
  const char* name;
  Architecture arch;
  int64_t hidden, heads, kv_heads;
  double rotary_factor;
};

// What every architecture must do, also with heads that share keys and values and with scaled
// rotary frequencies.
class TransformerTest : public testing::TestWithParam<Variant> {
 protected:
  static ModelShape SmallShape(bool tied) {
    const Variant& variant = GetParam();
    ModelShape shape;
    shape.arch = variant.arch;
    shape.layers = 2;
    shape.hidden = variant.hidden;
    shape.heads = variant.heads;
    shape.kv_heads = variant.kv_heads;
    shape.ffn = 22;
    shape.vocab = 17;
    shape.context = 8;
    shape.tie_embeddings = tied;
    shape.rotary.theta = 20;
    shape.rotary.factor = variant.rotary_factor;
    shape.rotary.original_context = 16;
    return shape;
  }
  static std::string TokenEmbedding(const ModelHarness& model) {
    return model.inventory().units[0].parameters[0].name;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Architectures, TransformerTest,
    testing::Values(Variant{"Gpt2", Architecture::kGpt2, 15, 3, 3, 1},
                    Variant{"Llama", Architecture::kLlama, 18, 3, 3, 1},
                    Variant{"LlamaOfSharedHeads", Architecture::kLlama, 24, 4, 2, 1},
                    Variant{"LlamaOfOneKeyHeadScaled", Architecture::kLlama, 18, 3, 1, 4}),
    [](const auto& variant) { return std::string(variant.param.name); });

double Norm(const float* x, int64_t elements) {
  double sum = 0;
  for (int64_t i = 0; i < elements; ++i) sum += double{x[i]} * x[i];
  return std::sqrt(sum);
}

double Largest(const float* x, int64_t elements) {
  double largest = 0;
  for (int64_t i = 0; i < elements; ++i) largest = std::max(largest, std::abs(double{x[i]}));
  return largest;
}

// Along its own gradient the loss of every parameter must rise by the gradient's length.
TEST_P(TransformerTest, GradientsAreTheSlopesOfTheLoss) {
  for (const bool tied : {true, false}) {
    ModelHarness model(SmallShape(tied), 3, 7);
    model.Randomize(1);
    const RandomBatch batch(3, 7, 17, 2);
    model.Step(batch.view(), 1.0f);
    for (const Unit& unit : model.inventory().units) {
      for (const Parameter& parameter : unit.parameters) {
        float* values = model.param(parameter.name);
        const std::vector<float> start(values, values + parameter.elements);
        const std::vector<float> grad(model.grad(parameter.name),
                                      model.grad(parameter.name) + parameter.elements);
        const double norm = Norm(grad.data(), parameter.elements);
        ASSERT_GT(norm, 0) << parameter.name;
        double losses[2];
        constexpr double kStep = 2e-3;
        for (const int side : {0, 1}) {
          for (size_t i = 0; i < grad.size(); ++i) {
            const double move = (side == 0 ? -kStep : kStep) * grad[i] / norm;
            values[i] = static_cast<float>(start[i] + move);
          }
          losses[side] = model.Loss(batch.view());
        }
        std::copy(start.begin(), start.end(), values);
        // A loss of about 50 in fp32 arithmetic is known to 1e-5, the third derivative adds 1e-3.
        EXPECT_NEAR((losses[1] - losses[0]) / (2 * kStep), norm, 1e-2 * norm + 1e-2)
            << parameter.name;
      }
    }
  }
}

// F5: one storage, the gradients of both uses added.
TEST_P(TransformerTest, ATiedHeadAddsBothUsesOfTheEmbedding) {
  ModelHarness tied(SmallShape(true), 2, 8);
  ModelHarness untied(SmallShape(false), 2, 8);
  tied.Randomize(3);
  for (const Unit& unit : tied.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      std::copy_n(tied.param(parameter.name), parameter.elements, untied.param(parameter.name));
    }
  }
  const int64_t elements = tied.parameter(TokenEmbedding(tied)).elements;
  std::copy_n(tied.param(TokenEmbedding(tied)), elements, untied.param("lm_head.weight"));
  const RandomBatch batch(2, 8, 17, 4);
  EXPECT_EQ(tied.Step(batch.view(), 0.5f), untied.Step(batch.view(), 0.5f));
  const float* both = tied.grad(TokenEmbedding(tied));
  for (int64_t i = 0; i < elements; ++i) {
    const float sum = untied.grad(TokenEmbedding(untied))[i] + untied.grad("lm_head.weight")[i];
    ASSERT_NEAR(both[i], sum, 1e-6 * Largest(both, elements)) << i;
  }
}

// F6: sums over tokens, so sequences with different numbers of counted tokens weigh as they should.
TEST_P(TransformerTest, ABatchIsTheSumOfItsSequences) {
  RandomBatch batch(3, 8, 17, 5);
  std::fill(batch.targets.begin() + 1, batch.targets.begin() + 8, -1);
  ModelHarness whole(SmallShape(true), 3, 8);
  ModelHarness single(SmallShape(true), 1, 8);
  whole.Randomize(6);
  single.Randomize(6);
  const double loss = whole.Step(batch.view(), 0.1f);
  const Unit& block = whole.inventory().units[1];
  std::vector<double> sums(static_cast<size_t>(block.elements));
  double loss_sum = 0;
  for (int64_t b = 0; b < 3; ++b) {
    loss_sum += single.Step(batch.sequence(b), 0.1f);
    for (const Parameter& parameter : block.parameters) {
      for (int64_t i = 0; i < parameter.elements; ++i) {
        sums[static_cast<size_t>(parameter.offset + i)] += single.grad(parameter.name)[i];
      }
    }
  }
  EXPECT_NEAR(loss, loss_sum, 1e-6 * loss);
  for (const Parameter& parameter : block.parameters) {
    const float* grad = whole.grad(parameter.name);
    for (int64_t i = 0; i < parameter.elements; ++i) {
      // The key bias has no gradient but rounding, hence the absolute term.
      ASSERT_NEAR(grad[i], sums[static_cast<size_t>(parameter.offset + i)],
                  1e-5 * Largest(grad, parameter.elements) + 1e-6)
          << parameter.name;
    }
  }
}

TEST_P(TransformerTest, TheFutureChangesNoLogit) {
  ModelHarness model(SmallShape(true), 1, 8);
  model.Randomize(7);
  RandomBatch batch(1, 8, 17, 8);
  model.Loss(batch.view());
  const std::vector<float> before = model.Logits(8);
  batch.inputs[5] = (batch.inputs[5] + 1) % 17;
  model.Loss(batch.view());
  const std::vector<float> after = model.Logits(8);
  EXPECT_EQ(0, std::memcmp(before.data(), after.data(), 5 * 17 * sizeof(float)));
  EXPECT_NE(0, std::memcmp(before.data() + 5 * 17, after.data() + 5 * 17, 17 * sizeof(float)));
}

void ExpectSameGradients(ModelHarness& a, ModelHarness& b) {
  for (const Unit& unit : a.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      EXPECT_EQ(0, std::memcmp(a.grad(parameter.name), b.grad(parameter.name),
                               static_cast<size_t>(parameter.elements) * sizeof(float)))
          << parameter.name;
    }
  }
}

TEST_P(TransformerTest, InferenceAndSpareRoomAndThreadsChangeNoBit) {
  ModelHarness exact(SmallShape(false), 2, 7);
  ModelHarness roomy(SmallShape(false), 5, 8, KeptActivations::kEverything, /*threads=*/2);
  ModelHarness inference(SmallShape(false), 2, 7, KeptActivations::kNothing);
  for (ModelHarness* model : {&exact, &roomy, &inference}) model->Randomize(9);
  const RandomBatch batch(2, 7, 17, 10);
  const double loss = exact.Loss(batch.view());
  EXPECT_EQ(loss, inference.Loss(batch.view()));
  EXPECT_EQ(exact.Logits(14), inference.Logits(14));
  EXPECT_EQ(loss, exact.Step(batch.view(), 1.0f));
  EXPECT_EQ(loss, roomy.Step(batch.view(), 1.0f));
  ExpectSameGradients(exact, roomy);
}

// F6: a micro-batch of padding and prompts alone adds nothing to a sum, and no NaN.
TEST_P(TransformerTest, WithoutTargetsLossAndGradientsAreZero) {
  ModelHarness model(SmallShape(true), 2, 7);
  model.Randomize(21);
  RandomBatch batch(2, 7, 17, 22);
  EXPECT_GT(model.Step(batch.view(), 1.0f), 0);
  std::fill(batch.targets.begin(), batch.targets.end(), -1);
  EXPECT_EQ(model.Loss(batch.view()), 0);
  EXPECT_EQ(model.Step(batch.view(), 1.0f), 0);
  for (const Unit& unit : model.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      const float* const gradient = model.grad(parameter.name);
      EXPECT_TRUE(std::all_of(gradient, gradient + parameter.elements, [](float value) {
        return value == 0;
      })) << parameter.name;
    }
  }
}

// The same bits from far fewer bytes, step after step, also after passes without a backward.
TEST_P(TransformerTest, RecomputingABlockChangesNoBit) {
  ModelShape shape = SmallShape(true);
  for (const int64_t layers : {1, 2, 5}) {
    shape.layers = layers;
    ModelHarness keeps(shape, 2, 7);
    ModelHarness recomputes(shape, 2, 7, KeptActivations::kBlockInputs);
    for (ModelHarness* model : {&keeps, &recomputes}) model->Randomize(14);
    for (const uint64_t seed : {15, 16}) {
      const RandomBatch batch(2, 7, 17, seed);
      EXPECT_EQ(keeps.Step(batch.view(), 1.0f), recomputes.Step(batch.view(), 1.0f));
      ExpectSameGradients(keeps, recomputes);
      EXPECT_EQ(keeps.Loss(batch.view()), recomputes.Loss(batch.view()));
    }
    const int64_t saved =
        keeps.meter().peak(Pool::kActivations) - recomputes.meter().peak(Pool::kActivations);
    const ModelPart part = PartOf(shape, {});
    const int64_t a_block =
        PredictActivationBytes(shape, part, 2, 7, KeptActivations::kEverything) -
        PredictActivationBytes(shape, part, 2, 7, KeptActivations::kBlockInputs);
    EXPECT_EQ(saved, a_block);
    EXPECT_EQ(saved > 0, layers > 1);
  }
}

TEST_P(TransformerTest, RepeatingAStepGivesTheSameBits) {
  ModelHarness model(SmallShape(true), 2, 7);
  model.Randomize(11);
  const RandomBatch batch(2, 7, 17, 12);
  const double loss = model.Step(batch.view(), 1.0f);
  const int64_t elements = model.inventory().units[0].elements;
  const std::vector<float> first(model.grad(TokenEmbedding(model)),
                                 model.grad(TokenEmbedding(model)) + elements);
  EXPECT_EQ(loss, model.Step(batch.view(), 1.0f));
  EXPECT_EQ(0, std::memcmp(first.data(), model.grad(TokenEmbedding(model)),
                           static_cast<size_t>(elements) * sizeof(float)));
}

// F16: what is predicted for activations is what is allocated, to the byte.
TEST(ActivationMemory, IsWhatThePlanPredicts) {
  std::mt19937_64 generator(13);
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  for (int i = 0; i < 300; ++i) {
    const auto [shape, batch, tokens, kept] = RandomModel(generator);
    MemoryMeter meter;
    const auto model = MakeModel(shape, BuildInventory(shape), batch, tokens, kept, *ops, meter);
    ASSERT_EQ(meter.peak_total(), meter.current(Pool::kActivations));
    ASSERT_EQ(meter.current(Pool::kActivations),
              PredictActivationBytes(shape, PartOf(shape, {}), batch, tokens, kept));
  }
}

// Reserved on demand by one training micro-batch of a model.
int64_t ScratchUsed(const ModelShape& shape, int64_t batch, int64_t tokens, DType params,
                    DType grads, int threads) {
  const Inventory inventory = BuildInventory(shape);
  MemoryMeter meter;
  const std::unique_ptr<Ops> ops = MakeCpuOps(threads, meter);
  const auto model =
      MakeModel(shape, inventory, batch, tokens, KeptActivations::kEverything, *ops, meter);
  std::vector<std::vector<std::byte>> buffers;
  std::vector<UnitParams> param_units;
  std::vector<UnitGrads> grad_units;
  for (const Unit& unit : inventory.units) {
    buffers.emplace_back(static_cast<size_t>(unit.elements * SizeOf(params)));
    param_units.push_back({buffers.back().data(), params});
    buffers.emplace_back(static_cast<size_t>(unit.elements * SizeOf(grads)));
    grad_units.push_back({buffers.back().data(), grads});
  }
  const RandomBatch micro_batch(batch, tokens, shape.vocab, /*seed=*/1);
  const int units = static_cast<int>(inventory.units.size());
  for (int u = 0; u < units; ++u) model->Forward(u, param_units, micro_batch.view());
  for (int u = units - 1; u >= 0; --u) {
    model->Backward(u, param_units, grad_units, micro_batch.view(), 1.0f);
  }
  return meter.current(Pool::kScratch);
}

int64_t ScratchPredicted(const ModelShape& shape, int64_t batch, int64_t tokens, DType params,
                         DType grads, int threads) {
  return PredictScratch(shape, PartOf(shape, {}), batch, tokens, SizeOf(params), SizeOf(grads))
      .Bytes(threads);
}

// F16: which thread takes which tile, and whether all of them get one, changes nothing.
TEST(ScratchMemory, IsWhatThePlanPredicts) {
  std::mt19937_64 generator(17);
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(generator);
  };
  for (int i = 0; i < 40; ++i) {
    const bool llama = draw(2) == 1;
    ModelShape shape;
    shape.arch = llama ? Architecture::kLlama : Architecture::kGpt2;
    shape.layers = 1;
    shape.kv_heads = draw(3);
    shape.heads = shape.kv_heads * (llama ? draw(3) : 1);
    shape.hidden = shape.heads * draw(60) * 2;
    shape.ffn = draw(2500);
    shape.vocab = draw(2000);
    shape.context = draw(200);
    shape.tie_embeddings = draw(2) == 1;
    const int64_t batch = draw(3);
    const int64_t tokens = draw(shape.context);
    const DType params = draw(2) == 1 ? DType::kF32 : DType::kBF16;
    const DType grads = draw(2) == 1 ? DType::kF32 : DType::kBF16;
    const int threads = static_cast<int>(draw(4));
    ASSERT_EQ(ScratchUsed(shape, batch, tokens, params, grads, threads),
              ScratchPredicted(shape, batch, tokens, params, grads, threads))
        << shape.hidden << " " << shape.ffn << " " << shape.vocab << " " << batch * tokens;
  }
}

}  // namespace
}  // namespace sherd
