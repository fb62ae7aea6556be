#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "worker/checkpoint/checkpoint.h"

namespace sherd {
namespace {

using testing::LocalWorld;
using testing::RankRecord;

// Everything that two runs must agree on, as bits.
struct Outcome {
  std::vector<uint64_t> curve;  // loss and gradient norm of every step, then held-out losses
  std::vector<uint32_t> weights;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Train(const v1::JobSpec& spec, int world, int threads) {
  LocalWorld job(spec, world, threads);
  const std::vector<RankRecord> ranks = job.Run();
  Outcome outcome;
  for (const RankRecord& rank : ranks) {
    EXPECT_TRUE(rank.result.status.ok()) << rank.result.status << " " << rank.result.operation;
  }
  for (const v1::StepReport& step : ranks[0].steps) {
    outcome.curve.push_back(std::bit_cast<uint64_t>(step.loss()));
    outcome.curve.push_back(std::bit_cast<uint64_t>(step.grad_norm()));
  }
  for (const v1::EvalReport& eval : ranks[0].evals) {
    outcome.curve.push_back(std::bit_cast<uint64_t>(eval.loss()));
  }
  const absl::StatusOr<Manifest> manifest = ReadManifest(ranks[0].result.weights_path);
  EXPECT_TRUE(manifest.ok()) << manifest.status();
  if (!manifest.ok()) return outcome;
  std::vector<std::vector<float>> tensors;
  tensors.reserve(manifest->tensors.size());
  EXPECT_TRUE(LoadTensors(ranks[0].result.weights_path, *manifest, [&](const StoredTensor& tensor) {
                tensors.emplace_back(static_cast<size_t>(tensor.elements));
                return tensors.back().data();
              }).ok());
  for (const std::vector<float>& tensor : tensors) {
    for (const float value : tensor) outcome.weights.push_back(std::bit_cast<uint32_t>(value));
  }
  return outcome;
}

struct Setting {
  v1::Strategy strategy;
  int world;
  int threads;
};

std::string Title(const Setting& setting) {
  return absl::StrCat(std::string(NameOf(setting.strategy)), " world ", setting.world, " threads ",
                      setting.threads);
}

class BitIdentity : public ::testing::TestWithParam<v1::DataType> {};

// F1, F12: one loss curve and the same weights, bit for bit, whatever strategy, world and threads:
// ddp's contract covers powers of two, zero3's any world.
TEST_P(BitIdentity, HoldsOverStrategiesWorldsAndThreads) {
  constexpr int64_t kMicroBatches = 8;
  constexpr int64_t kSteps = 50;
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(6000, 3));
  const std::string held_out = scratch.Write("eval.txt", testing::MakeText(700, 4));
  const auto job = [&](v1::Strategy strategy) {
    v1::JobSpec spec = testing::TinyJob(text, strategy, GetParam(), kMicroBatches, kSteps);
    spec.mutable_data()->add_eval(held_out);
    spec.mutable_train()->set_eval_every(20);
    return spec;
  };
  const Outcome reference = Train(job(v1::STRATEGY_ZERO3), 1, 1);
  ASSERT_EQ(reference.curve.size(), 2u * kSteps + 3);
  // It learns: the first and the last loss of the curve.
  EXPECT_LT(std::bit_cast<double>(reference.curve[2 * kSteps - 2]),
            0.75 * std::bit_cast<double>(reference.curve[0]));

  const Setting settings[] = {{v1::STRATEGY_ZERO3, 1, 2}, {v1::STRATEGY_ZERO3, 2, 1},
                              {v1::STRATEGY_ZERO3, 4, 2}, {v1::STRATEGY_ZERO3, 3, 1},
                              {v1::STRATEGY_DDP, 1, 1},   {v1::STRATEGY_DDP, 2, 2},
                              {v1::STRATEGY_DDP, 4, 1}};
  for (const Setting& setting : settings) {
    const Outcome outcome = Train(job(setting.strategy), setting.world, setting.threads);
    EXPECT_TRUE(outcome.curve == reference.curve) << Title(setting);
    EXPECT_TRUE(outcome.weights == reference.weights) << Title(setting);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BitIdentity,
                         ::testing::Values(v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// F7, F10, F35: micro-batches that do not divide by the world, over several rounds; and more ranks
// than micro-batches.
TEST(BitIdentityOfUnevenWork, HoldsForZero3AtAnyWorld) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 5));
  for (const int64_t micro_batches : {1, 5, 7}) {
    const v1::JobSpec spec =
        testing::TinyJob(text, v1::STRATEGY_ZERO3, v1::DATA_TYPE_BF16, micro_batches, 6);
    const Outcome reference = Train(spec, 1, 1);
    for (const int world : {2, 3, 4, 6}) {
      EXPECT_TRUE(Train(spec, world, 1) == reference) << micro_batches << " " << world;
    }
  }
}

// With one round ddp sums the same tree at any world.
TEST(BitIdentityOfUnevenWork, HoldsForDdpWithOneRound) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 5));
  v1::JobSpec spec = testing::TinyJob(text, v1::STRATEGY_ZERO3, v1::DATA_TYPE_BF16, 5, 6);
  const Outcome reference = Train(spec, 1, 1);
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_DDP);
  for (const int world : {5, 6}) EXPECT_TRUE(Train(spec, world, 1) == reference) << world;
}

// Keeping parameters gathered and gathering ahead change when bytes move, never a bit of the
// result.
TEST(BitIdentityOfSchedules, DoesNotDependOnReshardingOrPrefetch) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 6));
  v1::JobSpec spec = testing::TinyJob(text, v1::STRATEGY_ZERO3, v1::DATA_TYPE_BF16, 4, 6);
  const Outcome reference = Train(spec, 2, 1);
  for (const bool reshard : {true, false}) {
    for (const int64_t prefetch : {0, 1, 2, 7}) {
      spec.mutable_parallel()->set_reshard_after_forward(reshard);
      spec.mutable_parallel()->set_prefetch(prefetch);
      EXPECT_TRUE(Train(spec, 2, 1) == reference) << reshard << prefetch;
    }
  }
}

}  // namespace
}  // namespace sherd
