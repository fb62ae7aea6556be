// Tensor and sequence parallelism in every combination with what else there is, against one rank
// that does all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"
#include "worker/model/init.h"

namespace sherd {
namespace {

using testing::LocalWorld;
using testing::RankRecord;
using Weights = std::map<std::string, std::vector<float>>;

// One point of the grid.
struct Layout {
  int kv_heads;  // 0: GPT-2
  int tensor;
  int data;
  std::string strategy;
  int rounds;
  bool sequence;
  bool recompute;
  bool tied;
  int vocab;
};

constexpr int kFactors = 9;
using Levels = std::array<size_t, kFactors>;
constexpr Levels kLevels = {4, 3, 4, 7, 2, 2, 2, 2, 2};

Layout LayoutOf(const Levels& levels) {
  constexpr int kKvHeads[] = {0, 4, 2, 1};
  constexpr int kTensor[] = {1, 2, 4};
  // A vocabulary that no degree divides.
  constexpr int kVocab[] = {256, 259};
  constexpr const char* kStrategy[] = {"ddp",   "zero1",      "zero1 all_reduce", "zero2",
                                       "zero3", "zero3 kept", "hybrid 2"};
  return {.kv_heads = kKvHeads[levels[0]],
          .tensor = kTensor[levels[1]],
          .data = static_cast<int>(levels[2]) + 1,
          .strategy = kStrategy[levels[3]],
          .rounds = levels[4] == 0 ? 1 : 3,
          .sequence = levels[5] == 1,
          .recompute = levels[6] == 1,
          .tied = levels[7] == 0,
          .vocab = kVocab[levels[8]]};
}

bool Exists(const Layout& layout) {
  if (layout.sequence && layout.tensor == 1) return false;
  return layout.strategy != "hybrid 2" || layout.data % 2 == 0;
}

// Points that hold every pair of levels of two factors that exists at all: the one of many random
// candidates that brings most new pairs, until none is left.
std::vector<Layout> PairwiseGrid() {
  using Pair = std::array<size_t, 4>;
  const auto pairs_of = [](const Levels& levels) {
    std::vector<Pair> pairs;
    for (size_t a = 0; a < kFactors; ++a) {
      for (size_t b = a + 1; b < kFactors; ++b) pairs.push_back({a, levels[a], b, levels[b]});
    }
    return pairs;
  };
  std::mt19937_64 random(1);
  std::vector<Levels> candidates;
  while (candidates.size() < 4000) {
    Levels levels;
    for (size_t factor = 0; factor < kFactors; ++factor)
      levels[factor] = random() % kLevels[factor];
    if (Exists(LayoutOf(levels))) candidates.push_back(levels);
  }
  std::set<Pair> missing;
  for (const Levels& levels : candidates) {
    for (const Pair& pair : pairs_of(levels)) missing.insert(pair);
  }
  std::vector<Layout> grid;
  while (!missing.empty()) {
    const Levels* best = nullptr;
    int64_t most = 0;
    for (const Levels& levels : candidates) {
      int64_t news = 0;
      for (const Pair& pair : pairs_of(levels)) news += missing.contains(pair) ? 1 : 0;
      if (news > most) {
        most = news;
        best = &levels;
      }
    }
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
    grid.push_back(LayoutOf(*best));
  }
  return grid;
}

std::string Describe(const Layout& layout) {
  return absl::StrCat(
      layout.kv_heads == 0 ? "gpt2" : absl::StrCat("llama, kv heads ", layout.kv_heads),
      ", tensor ", layout.tensor, ", data ", layout.data, ", ", layout.strategy, ", rounds ",
      layout.rounds, layout.sequence ? ", sequence" : "", layout.recompute ? ", recompute" : "",
      layout.tied ? "" : ", untied", ", vocab ", layout.vocab);
}

class TensorParallelTest : public ::testing::Test {
 protected:
  v1::JobSpec Job(const Layout& layout, int64_t steps) {
    v1::JobSpec spec = testing::TinyJob(text_, layout.strategy, v1::DATA_TYPE_FP32,
                                        static_cast<int64_t>(layout.data) * layout.rounds, steps);
    v1::ModelSpec& model = *spec.mutable_model();
    model.set_heads(4);
    model.set_kv_heads(4);
    model.set_vocab(layout.vocab);
    model.set_tie_embeddings(layout.tied);
    if (layout.kv_heads > 0) {
      testing::MakeLlama(spec);
      model.set_kv_heads(layout.kv_heads);
    }
    v1::ParallelSpec& parallel = *spec.mutable_parallel();
    parallel.set_tensor(layout.tensor);
    parallel.set_sequence_parallel(layout.sequence);
    if (layout.recompute) parallel.set_recompute(v1::RECOMPUTE_BLOCK);
    return spec;
  }

  // The same training on one rank.
  static Layout Alone(const Layout& layout) {
    Layout alone = layout;
    alone.rounds = layout.rounds * layout.data;
    alone.tensor = alone.data = 1;
    alone.strategy = "ddp";
    alone.sequence = alone.recompute = false;
    return alone;
  }

  std::vector<RankRecord> Run(const v1::JobSpec& spec, const Layout& layout) {
    return LocalWorld(spec, layout.tensor * layout.data).Run();
  }

  TemporaryDirectory scratch_;
  const std::string text_ = scratch_.Write("train.txt", testing::MakeText(6000, 3));
};

// One update with step size kRate and eps 1 moves a weight by kRate · g / (|g| + 1), which gives
// the gradient back; a large rate makes the rounding of the weight itself small beside it.
constexpr double kRate = 256;

void MakeGradientsVisible(v1::JobSpec& spec) {
  v1::TrainSpec& train = *spec.mutable_train();
  train.set_grad_clip(0);
  train.mutable_schedule()->set_warmup(0);
  train.mutable_schedule()->set_min_lr(kRate);
  train.mutable_optimizer()->set_lr(kRate);
  train.mutable_optimizer()->set_eps(1);
  train.mutable_optimizer()->set_weight_decay(0);
}

Weights GradientsOf(const v1::JobSpec& spec, const Weights& updated) {
  Weights gradients;
  for (const Unit& unit : BuildInventory(ShapeOf(spec.model())).units) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float> values(static_cast<size_t>(parameter.elements));
      InitializeRange(parameter, spec.train().seed(), 0, parameter.elements, values.data());
      const std::vector<float>& after = updated.at(parameter.name);
      for (size_t i = 0; i < values.size(); ++i) {
        const double moved = static_cast<double>(values[i]) - static_cast<double>(after[i]);
        values[i] = static_cast<float>(moved / (kRate - std::abs(moved)));
      }
      gradients[parameter.name] = std::move(values);
    }
  }
  return gradients;
}

// Every value within `tolerance` of its tensor's largest.
void ExpectClose(const Weights& values, const Weights& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    const std::vector<float>& other = values.at(name);
    ASSERT_EQ(other.size(), tensor.size()) << what << " " << name;
    double largest = 0;
    double difference = 0;
    for (size_t i = 0; i < tensor.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(tensor[i])));
      difference = std::max(
          difference, std::abs(static_cast<double>(tensor[i]) - static_cast<double>(other[i])));
    }
    EXPECT_LE(difference, tolerance * largest) << what << " " << name;
  }
}

// F2–F5, F11, F14.
TEST_F(TensorParallelTest, HasTheGradientsOfOneRank) {
  std::map<std::string, Weights> alone;
  for (const Layout& layout : PairwiseGrid()) {
    const auto gradients = [&](const Layout& of) {
      v1::JobSpec spec = Job(of, 1);
      MakeGradientsVisible(spec);
      const std::vector<RankRecord> ranks = Run(spec, of);
      EXPECT_TRUE(ranks[0].result.status.ok()) << ranks[0].result.status << Describe(of);
      return GradientsOf(spec, testing::ReadWeights(ranks[0].result.weights_path));
    };
    const std::string key = Describe(Alone(layout));
    if (!alone.contains(key)) alone[key] = gradients(Alone(layout));
    ExpectClose(gradients(layout), alone[key], 1e-5, Describe(layout));
  }
}

// The true gradient of a key's bias is zero: softmax does not see it. What is left is rounding.
void ForgetKeyBiases(Weights& weights) {
  for (auto& [name, values] : weights) {
    if (!absl::EndsWith(name, "attn.c_attn.bias")) continue;
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(values.size() / 3), values.size() / 3,
                0.0f);
  }
}

// F1, F2, F16, F17: the curve of one rank, and ledgers that are exact.
TEST_F(TensorParallelTest, FollowsTheCurveOfOneRank) {
  struct Curve {
    std::vector<double> losses;
    std::vector<double> norms;
    Weights weights;
  };
  const auto train = [&](const Layout& layout) {
    v1::JobSpec spec = Job(layout, 20);
    // Where gradients are about as small as their rounding, the usual eps makes a step of it.
    spec.mutable_train()->mutable_optimizer()->set_eps(1e-3);
    const std::vector<RankRecord> ranks = Run(spec, layout);
    testing::ExpectExactLedgers(ranks, Describe(layout));
    Curve curve;
    for (const v1::StepReport& step : ranks[0].steps) {
      curve.losses.push_back(step.loss());
      curve.norms.push_back(step.grad_norm());
    }
    curve.weights = testing::ReadWeights(ranks[0].result.weights_path);
    ForgetKeyBiases(curve.weights);
    return curve;
  };
  std::map<std::string, Curve> alone;
  for (const Layout& layout : PairwiseGrid()) {
    const std::string key = Describe(Alone(layout));
    if (!alone.contains(key)) alone[key] = train(Alone(layout));
    const Curve& expected = alone[key];
    const Curve curve = train(layout);
    ASSERT_EQ(curve.losses.size(), 20u) << Describe(layout);
    for (size_t step = 0; step < 20; ++step) {
      EXPECT_NEAR(curve.losses[step] / expected.losses[step], 1, 1e-5) << Describe(layout);
      EXPECT_NEAR(curve.norms[step] / expected.norms[step], 1, 1e-4) << Describe(layout);
    }
    ExpectClose(curve.weights, expected.weights, 1e-4, Describe(layout));
  }
}

// Section 4: at equal tensor and data degrees strategies and recomputation change no bit.
TEST_F(TensorParallelTest, HasTheSameBitsUnderEveryStrategy) {
  for (const bool sequence : {false, true}) {
    for (const int kv_heads : {0, 1}) {
      Layout layout{kv_heads, 2, 4, "zero3", 1, sequence, false, true, 259};
      const auto run = [&] {
        const std::vector<RankRecord> ranks = Run(Job(layout, 10), layout);
        std::vector<double> figures;
        for (const v1::StepReport& step : ranks[0].steps) {
          figures.push_back(step.loss());
          figures.push_back(step.grad_norm());
        }
        return std::pair(figures, testing::ReadWeights(ranks[0].result.weights_path));
      };
      const auto expected = run();
      for (const absl::string_view strategy : testing::StrategiesOf(layout.data)) {
        layout.strategy = std::string(strategy);
        for (const bool recompute : {false, true}) {
          layout.recompute = recompute;
          EXPECT_TRUE(run() == expected) << Describe(layout);
        }
      }
    }
  }
}

// Members of a tensor-parallel group and of a data-parallel group that die, end all ranks, and each
// says who it was.
TEST_F(TensorParallelTest, EndsOnEveryRankWhenOneIsAborted) {
  const Layout layout{0, 2, 2, "zero3", 1, false, false, true, 256};
  LocalWorld world(Job(layout, 1'000'000), 4);
  world.Start();
  world.WaitForStep(0, 2);
  world.trainer(3).Abort("a test");
  for (const RankRecord& rank : world.Join()) {
    EXPECT_FALSE(rank.result.status.ok());
  }
}

}  // namespace
}  // namespace sherd
