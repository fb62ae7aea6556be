#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "plan/scratch.h"
#include "plan/tensor_traffic.h"
#include "tests/worker/model/tensor_world.h"

namespace sherd {
namespace {

struct Variant {
  const char* name;
  Architecture arch;
  int64_t kv_heads;
};
constexpr Variant kVariants[] = {{"Gpt2", Architecture::kGpt2, 4},
                                 {"Llama", Architecture::kLlama, 4},
                                 {"LlamaOfSharedHeads", Architecture::kLlama, 2},
                                 {"LlamaOfOneKeyHead", Architecture::kLlama, 1}};

// Three sequences of eight tokens: ranges of rows begin and end inside sequences. Neither 2 nor 4
// divides the vocabulary.
constexpr int64_t kBatch = 3, kTokens = 8, kVocab = 17;

ModelShape SmallShape(const Variant& variant, bool tied) {
  ModelShape shape;
  shape.arch = variant.arch;
  shape.layers = 3;
  shape.hidden = 24;
  shape.heads = 4;
  shape.kv_heads = variant.kv_heads;
  shape.ffn = 20;
  shape.vocab = kVocab;
  shape.context = 9;
  shape.tie_embeddings = tied;
  shape.rotary.theta = 20;
  return shape;
}

using Case = std::tuple<Variant, int, bool, bool>;

class TensorParallel : public testing::TestWithParam<Case> {
 protected:
  static ModelShape shape() { return SmallShape(std::get<0>(GetParam()), std::get<3>(GetParam())); }
  static int degree() { return std::get<1>(GetParam()); }
  static bool sequence() { return std::get<2>(GetParam()); }
};

std::string NameOf(const testing::TestParamInfo<Case>& of) {
  const auto& [variant, degree, sequence, tied] = of.param;
  return std::string(variant.name) + "Of" + std::to_string(degree) + (sequence ? "Sequence" : "") +
         (tied ? "Tied" : "");
}

INSTANTIATE_TEST_SUITE_P(Groups, TensorParallel,
                         testing::Combine(testing::ValuesIn(kVariants), testing::Values(2, 4),
                                          testing::Bool(), testing::Bool()),
                         NameOf);

double Largest(const float* x, int64_t elements) {
  double largest = 0;
  for (int64_t i = 0; i < elements; ++i) largest = std::max(largest, std::abs(double{x[i]}));
  return largest;
}

// Losses of all members, and every tensor's gradient, against the whole model's: the same sums in
// another order.
void ExpectTheWholeModelsStep(ModelHarness& whole, TensorWorld& world, const MicroBatch& batch) {
  const double loss = whole.Step(batch, 0.25f);
  const std::vector<double> losses = world.Step(batch, 0.25f);
  EXPECT_NEAR(losses[0], loss, 1e-6 * loss);
  EXPECT_EQ(losses, std::vector<double>(losses.size(), losses[0]));
  for (const Unit& unit : whole.inventory().units) {
    for (const Parameter& parameter : unit.parameters) {
      const float* want = whole.grad(parameter.name);
      const std::vector<float> got = world.Gradient(parameter);
      const double bound = 1e-5 * Largest(want, parameter.elements);
      ASSERT_GT(bound, 0) << parameter.name;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], bound) << parameter.name << "[" << i << "]";
      }
    }
  }
}

// F3, F4, F5, F11, F14
TEST_P(TensorParallel, LossAndGradientsAreTheWholeModels) {
  ModelHarness whole(shape(), kBatch, kTokens);
  whole.Randomize(1);
  TensorWorld world(shape(), degree(), sequence(), kBatch, kTokens);
  world.CopyParameters(whole);
  for (const uint64_t seed : {2, 3}) {
    const RandomBatch batch(kBatch, kTokens, kVocab, seed);
    ExpectTheWholeModelsStep(whole, world, batch.view());
  }
}

TEST_P(TensorParallel, RecomputingABlockChangesNoBit) {
  ModelHarness whole(shape(), kBatch, kTokens);
  whole.Randomize(4);
  TensorWorld keeps(shape(), degree(), sequence(), kBatch, kTokens);
  TensorWorld recomputes(shape(), degree(), sequence(), kBatch, kTokens,
                         KeptActivations::kBlockInputs);
  keeps.CopyParameters(whole);
  recomputes.CopyParameters(whole);
  const RandomBatch batch(kBatch, kTokens, kVocab, 5);
  EXPECT_EQ(keeps.Step(batch.view(), 1.0f), recomputes.Step(batch.view(), 1.0f));
  for (int index = 0; index < degree(); ++index) {
    for (const Unit& unit : keeps.member(index).inventory().units) {
      for (const Parameter& parameter : unit.parameters) {
        EXPECT_EQ(0, std::memcmp(keeps.member(index).grad(parameter.name),
                                 recomputes.member(index).grad(parameter.name),
                                 static_cast<size_t>(parameter.elements) * sizeof(float)))
            << parameter.name << " of member " << index;
      }
    }
  }
}

TEST_P(TensorParallel, EvaluationHasTheLossOfTraining) {
  ModelHarness whole(shape(), kBatch, kTokens);
  whole.Randomize(6);
  TensorWorld trains(shape(), degree(), sequence(), kBatch, kTokens);
  TensorWorld evaluates(shape(), degree(), sequence(), kBatch, kTokens, KeptActivations::kNothing);
  trains.CopyParameters(whole);
  evaluates.CopyParameters(whole);
  const RandomBatch batch(kBatch, kTokens, kVocab, 7);
  const std::vector<double> losses = trains.Step(batch.view(), 1.0f);
  EXPECT_EQ(trains.Loss(batch.view()), losses);
  EXPECT_EQ(evaluates.Loss(batch.view()), losses);
}

TensorTraffic Sent(const Communicator& communicator) {
  const WireCounts counts = communicator.counts();
  const auto of = [&](Collective collective) {
    const WireCount& count = counts[static_cast<size_t>(collective)];
    return Wire{count.bytes, count.messages};
  };
  return {.all_gather = of(Collective::kAllGather),
          .reduce_scatter = of(Collective::kReduceScatter),
          .all_reduce = of(Collective::kAllReduce)};
}

// What member `index` sends in one call is what is predicted for it.
void ExpectSends(TensorWorld& world, int index, const TensorTraffic& predicted,
                 const std::string& what, const std::function<void()>& call) {
  TensorTraffic sum = Sent(world.communicator(index));
  call();
  sum += predicted;
  EXPECT_TRUE(Sent(world.communicator(index)) == sum) << what << " of member " << index;
}

// To the byte and message, call by call.
TEST_P(TensorParallel, SendsWhatThePlanPredicts) {
  constexpr int64_t kRows = kBatch * kTokens;
  for (const auto kept : {KeptActivations::kEverything, KeptActivations::kBlockInputs}) {
    TensorWorld world(shape(), degree(), sequence(), kBatch, kTokens, kept);
    const RandomBatch batch(kBatch, kTokens, kVocab, 8);
    world.Run([&](int index) {
      ModelHarness& member = world.member(index);
      const ModelPart& part = member.inventory().part;
      for (int u = 0; u < member.units(); ++u) {
        ExpectSends(world, index, ForwardTraffic(shape(), part, u, kRows),
                    "forward " + std::to_string(u), [&] { member.Forward(u, batch.view()); });
      }
      ExpectSends(world, index, LossTraffic(part, kRows), "loss",
                  [&] { member.LossAfterForward(batch.view()); });
      for (int u = member.units() - 1; u >= 0; --u) {
        ExpectSends(world, index, BackwardTraffic(shape(), part, u, kRows, kept),
                    "backward " + std::to_string(u),
                    [&] { member.Backward(u, batch.view(), 1.0f); });
      }
      EXPECT_GT(world.group(index).exposed_seconds(), 0);
    });
  }
}

// F16
TEST_P(TensorParallel, KeepsWhatThePlanPredicts) {
  const RandomBatch batch(kBatch, kTokens, kVocab, 9);
  for (const auto kept :
       {KeptActivations::kEverything, KeptActivations::kBlockInputs, KeptActivations::kNothing}) {
    TensorWorld world(shape(), degree(), sequence(), kBatch, kTokens, kept);
    if (kept != KeptActivations::kNothing) world.Step(batch.view(), 1.0f);
    for (int index = 0; index < degree(); ++index) {
      ModelHarness& member = world.member(index);
      const ModelPart& part = member.inventory().part;
      EXPECT_EQ(member.meter().current(Pool::kActivations),
                PredictActivationBytes(shape(), part, kBatch, kTokens, kept));
      EXPECT_EQ(member.meter().peak_total(), member.meter().current(Pool::kActivations));
      if (kept == KeptActivations::kNothing) continue;
      EXPECT_EQ(member.scratch_bytes(),
                PredictScratch(shape(), part, kBatch, kTokens, 4, 4).Bytes(/*threads=*/1));
    }
  }
}

// Of every row that goes to another member: C numbers in each block's input and between its halves,
// in the head's input and in the gradient; and a mean and a deviation for each norm.
TEST(SequenceParallel, HoldsItsPartOfTheResidualStream) {
  const ModelShape shape = SmallShape(kVariants[0], true);
  const auto measured = [&](bool sequence) {
    TensorWorld world(shape, 4, sequence, kBatch, kTokens);
    return world.member(0).meter().current(Pool::kActivations);
  };
  constexpr int64_t kElsewhere = kBatch * kTokens * 3 / 4;
  const int64_t stream = 2 * shape.layers + 2;
  const int64_t moments = 4 * shape.layers + 2;
  EXPECT_EQ(measured(false) - measured(true), kElsewhere * (stream * shape.hidden + moments) * 4);
}

// F11: so few entries that the last member has none, and so many that the head goes in chunks.
TEST(TensorParallelVocabulary, MayLeaveAMemberWithPaddingAlone) {
  for (const bool sequence : {false, true}) {
    ModelShape shape = SmallShape(kVariants[0], false);
    shape.vocab = 5;
    ModelHarness whole(shape, kBatch, kTokens);
    whole.Randomize(10);
    TensorWorld world(shape, 4, sequence, kBatch, kTokens);
    ASSERT_EQ(world.member(3).inventory().part.vocabulary.size(), 0);
    world.CopyParameters(whole);
    const RandomBatch batch(kBatch, kTokens, shape.vocab, 11);
    ExpectTheWholeModelsStep(whole, world, batch.view());
  }
}

TEST(TensorParallelVocabulary, GoesInChunksOfRows) {
  constexpr int64_t kLongTokens = 204, kRows = 3 * kLongTokens;
  for (const bool sequence : {false, true}) {
    for (const bool tied : {false, true}) {
      ModelShape shape = SmallShape(kVariants[2], tied);
      shape.layers = 1;
      shape.vocab = 207;
      shape.context = kLongTokens;
      ModelHarness whole(shape, 3, kLongTokens);
      whole.Randomize(12);
      TensorWorld world(shape, 4, sequence, 3, kLongTokens);
      world.CopyParameters(whole);
      const ModelPart& part = world.member(1).inventory().part;
      ASSERT_EQ(HeadChunkRows(part, kRows), 256);
      const RandomBatch batch(3, kLongTokens, shape.vocab, 13);
      ExpectTheWholeModelsStep(whole, world, batch.view());
      const std::vector<double> losses = world.Step(batch.view(), 1.0f);
      EXPECT_EQ(world.Loss(batch.view()), losses);
      world.Run([&](int index) {
        ModelHarness& member = world.member(index);
        ExpectSends(world, index, LossTraffic(member.inventory().part, kRows), "loss",
                    [&] { member.LossAfterForward(batch.view()); });
      });
      EXPECT_EQ(world.member(1).meter().current(Pool::kActivations),
                PredictActivationBytes(shape, part, 3, kLongTokens, KeptActivations::kEverything));
      EXPECT_EQ(world.member(1).scratch_bytes(),
                PredictScratch(shape, part, 3, kLongTokens, 4, 4).Bytes(/*threads=*/1));
    }
  }
}

// F22: nobody waits for a member that has left, and the error stays to be asked for.
TEST(TensorParallelFailure, EndsEveryCallOfEveryMember) {
  const ModelShape shape = SmallShape(kVariants[0], true);
  TensorWorld world(shape, 2, true, kBatch, kTokens);
  const RandomBatch batch(kBatch, kTokens, kVocab, 14);
  world.Run([&](int index) {
    if (index == 1) return world.communicator(1).Abort("the job was stopped");
    world.member(0).Step(batch.view(), 1.0f);
    world.member(0).Loss(batch.view());
    EXPECT_EQ(world.communicator(0).status().code(), absl::StatusCode::kAborted);
  });
}

}  // namespace
}  // namespace sherd
