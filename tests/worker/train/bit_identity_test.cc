#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"
#include "tests/support/temporary_directory.h"
#include "tests/worker/train/local_world.h"
#include "tests/worker/train/outcome.h"

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

Outcome Train(const v1::JobSpec& spec, int world, int threads,
              const std::set<v1::GroupKind>& over_tcp = {}) {
  LocalWorld job(spec, world, threads, over_tcp);
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
  for (const auto& [name, tensor] : testing::ReadWeights(ranks[0].result.weights_path)) {
    for (const float value : tensor) outcome.weights.push_back(std::bit_cast<uint32_t>(value));
  }
  return outcome;
}

class BitIdentity : public ::testing::TestWithParam<v1::DataType> {};

// F1, F12: one loss curve and the same weights, bit for bit, whatever strategy, world, rounds and
// threads. What accumulates locally covers powers of two.
TEST_P(BitIdentity, HoldsOverStrategiesWorldsRoundsAndThreads) {
  constexpr int64_t kSteps = 50;
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(6000, 3));
  const std::string held_out = scratch.Write("eval.txt", testing::MakeText(700, 4));
  for (const int64_t micro_batches : {1, 2, 4, 8, 16}) {
    const auto job = [&](absl::string_view strategy) {
      v1::JobSpec spec = testing::TinyJob(text, strategy, GetParam(), micro_batches, kSteps);
      spec.mutable_data()->add_eval(held_out);
      spec.mutable_train()->set_eval_every(20);
      spec.mutable_model()->set_tie_embeddings(micro_batches != 4);
      spec.mutable_parallel()->set_prefetch(micro_batches == 8 ? 2 : 1);
      return spec;
    };
    const Outcome reference = Train(job("zero3"), 1, 1);
    ASSERT_EQ(reference.curve.size(), 2u * kSteps + 3);
    // It learns: the first and the last loss of the curve.
    EXPECT_LT(std::bit_cast<double>(reference.curve[2 * kSteps - 2]),
              0.75 * std::bit_cast<double>(reference.curve[0]));
    int threads = 1;
    for (const int world : {1, 2, 4}) {
      const int64_t rounds = micro_batches / world;
      if (rounds * world != micro_batches || rounds > 4) continue;
      for (const absl::string_view strategy : testing::StrategiesOf(world)) {
        threads = 3 - threads;
        const Outcome outcome = Train(job(strategy), world, threads);
        const std::string title =
            absl::StrCat(strategy, " world ", world, " rounds ", rounds, " threads ", threads);
        EXPECT_TRUE(outcome.curve == reference.curve) << title;
        EXPECT_TRUE(outcome.weights == reference.weights) << title;
      }
      threads = 3 - threads;  // the other way round in the next world
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BitIdentity,
                         ::testing::Values(v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// F7, F10, F35: micro-batches that do not divide by the world, over several rounds; and more ranks
// than micro-batches.
TEST(BitIdentityOfUnevenWork, HoldsForZero2AndZero3AtAnyWorld) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 5));
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int64_t micro_batches : {1, 5, 7, 11}) {
      const auto job = [&](absl::string_view strategy) {
        return testing::TinyJob(text, strategy, type, micro_batches, 6);
      };
      const Outcome reference = Train(job("zero3"), 1, 1);
      for (const absl::string_view strategy : {"zero2", "zero3", "zero3 kept"}) {
        for (const int world : {2, 3, 4, 5, 6}) {
          EXPECT_TRUE(Train(job(strategy), world, 1) == reference)
              << strategy << " " << micro_batches << " " << world;
        }
      }
    }
  }
}

// What accumulates locally sums the same tree where the plan says so, also at odd worlds and with
// micro-batches that do not divide.
TEST(BitIdentityOfUnevenWork, HoldsForLocalSumsWhereThePlanSaysSo) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 5));
  int held = 0;
  for (const int64_t micro_batches : {2, 3, 5, 6, 7, 11, 12}) {
    const auto job = [&](absl::string_view strategy) {
      return testing::TinyJob(text, strategy, v1::DATA_TYPE_BF16, micro_batches, 6);
    };
    const Outcome reference = Train(job("zero3"), 1, 1);
    for (const absl::string_view strategy : {"ddp", "zero1", "zero1 all_reduce", "hybrid 2"}) {
      for (const int world : {2, 3, 5, 6}) {
        if (strategy == "hybrid 2" && world % 2 != 0) continue;
        if (!BuildRankPlan(job(strategy), 0, world).micro_batches.SumsInTreeOrder()) continue;
        ++held;
        EXPECT_TRUE(Train(job(strategy), world, 1) == reference)
            << strategy << " " << micro_batches << " " << world;
      }
    }
  }
  EXPECT_GT(held, 40);
}

// Where a group's members are changes how bytes move, never a bit of the result; also where the
// order of summation is another than on one worker.
TEST(BitIdentityOfTransports, SharedMemoryAndTcpGiveTheSameCurveAndWeights) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const int world : {2, 3, 4}) {
      for (const absl::string_view strategy : testing::StrategiesOf(world)) {
        v1::JobSpec spec = testing::TinyJob(text, strategy, type, 7, 5);
        spec.mutable_data()->add_eval(text);
        spec.mutable_train()->set_eval_every(3);
        const Outcome reference = Train(spec, world, 1);
        ASSERT_EQ(reference.curve.size(), 2u * 5 + 2);
        const std::set<v1::GroupKind> all = {v1::GROUP_KIND_DATA, v1::GROUP_KIND_SHARD,
                                             v1::GROUP_KIND_REPLICA};
        EXPECT_TRUE(Train(spec, world, 1, all) == reference) << strategy << " world " << world;
        if (spec.parallel().shard_group() == 0) continue;
        for (const v1::GroupKind one : {v1::GROUP_KIND_SHARD, v1::GROUP_KIND_REPLICA}) {
          EXPECT_TRUE(Train(spec, world, 1, {one}) == reference)
              << strategy << " world " << world << " " << v1::GroupKind_Name(one);
        }
      }
    }
  }
}

// Gathering ahead, keeping parameters gathered and reducing in buckets change when bytes move,
// never a bit of the result.
TEST(BitIdentityOfSchedules, DoesNotDependOnReshardingPrefetchOrBuckets) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 6));
  v1::JobSpec spec = testing::TinyJob(text, "zero3", v1::DATA_TYPE_BF16, 4, 6);
  const Outcome reference = Train(spec, 2, 1);
  for (const bool reshard : {true, false}) {
    for (const int64_t prefetch : {0, 1, 2, 7}) {
      spec.mutable_parallel()->set_reshard_after_forward(reshard);
      spec.mutable_parallel()->set_prefetch(prefetch);
      EXPECT_TRUE(Train(spec, 2, 1) == reference) << reshard << prefetch;
    }
  }
  for (const absl::string_view strategy : {"ddp", "zero1", "zero1 all_reduce"}) {
    testing::SetStrategy(strategy, spec);
    spec.mutable_parallel()->set_bucket_mb(25);
    EXPECT_TRUE(Train(spec, 2, 1) == reference) << strategy;
  }
}

// F1, F12: Llama and recomputation, too: the same bits over strategies and worlds, with and
// without.
TEST(BitIdentityOfArchitectures, HoldsOverStrategiesWorldsAndRecomputation) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 7));
  for (const bool llama : {true, false}) {
    for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
      const auto job = [&](absl::string_view strategy, v1::Recompute recompute) {
        v1::JobSpec spec = testing::TinyJob(text, strategy, type, 2, 8);
        spec.mutable_data()->add_eval(text);
        spec.mutable_train()->set_eval_every(3);
        if (llama) testing::MakeLlama(spec);
        spec.mutable_parallel()->set_recompute(recompute);
        return spec;
      };
      const Outcome reference = Train(job("zero3", v1::RECOMPUTE_NONE), 1, 1);
      ASSERT_EQ(reference.curve.size(), 2u * 8 + 3);
      EXPECT_LT(std::bit_cast<double>(reference.curve[14]),
                0.9 * std::bit_cast<double>(reference.curve[0]));
      for (const int world : {1, 2, 3}) {
        for (const absl::string_view strategy : testing::kStrategies) {
          for (const v1::Recompute recompute : {v1::RECOMPUTE_NONE, v1::RECOMPUTE_BLOCK}) {
            EXPECT_TRUE(Train(job(strategy, recompute), world, 1 + world % 2) == reference)
                << strategy << " world " << world << (llama ? " llama " : " gpt2 ")
                << NameOf(recompute);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sherd
