// Parameters that are not trained, and training without clipping, under every strategy.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/job_spec.h"
#include "plan/name_patterns.h"
#include "plan/parameters.h"
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

struct Outcome {
  std::vector<uint64_t> curve;
  Weights weights;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Train(const v1::JobSpec& spec, int world, const std::string& what) {
  const std::vector<RankRecord> ranks = LocalWorld(spec, world).Run();
  testing::ExpectExactLedgers(ranks, what);
  Outcome outcome;
  for (const v1::StepReport& step : ranks[0].steps) {
    outcome.curve.push_back(std::bit_cast<uint64_t>(step.loss()));
    outcome.curve.push_back(std::bit_cast<uint64_t>(step.grad_norm()));
  }
  outcome.weights = testing::ReadWeights(ranks[0].result.weights_path);
  return outcome;
}

Weights FirstWeights(const v1::JobSpec& spec) {
  Weights weights;
  for (const Unit& unit : BuildInventory(ShapeOf(spec.model())).units) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float>& values = weights[parameter.name];
      values.resize(static_cast<size_t>(parameter.elements));
      InitializeRange(parameter, spec.train().seed(), 0, parameter.elements, values.data());
    }
  }
  return weights;
}

// What is frozen is as it was, bit for bit; all else has moved.
void ExpectOnlyTheOthersMoved(const v1::JobSpec& spec, const Weights& after,
                              const std::string& what) {
  const Weights before = FirstWeights(spec);
  ASSERT_EQ(before.size(), after.size());
  int frozen = 0;
  for (const auto& [name, values] : after) {
    bool expected = false;
    for (const std::string& pattern : spec.train().freeze()) {
      expected = expected || MatchesPattern(pattern, name);
    }
    frozen += expected ? 1 : 0;
    EXPECT_EQ(values == before.at(name), expected) << what << " " << name;
  }
  EXPECT_GT(frozen, 0);
}

struct Frozen {
  const char* name;
  std::vector<std::string> patterns;
  bool tied = true;
};

const Frozen kFrozen[] = {
    {"parts of units", {"wpe.*", "*.attn.c_proj.weight", "*.ln_1.*", "ln_f.bias"}},
    {"the first units, of which a tied head reads one", {"wte.*", "wpe.*", "h.0.*"}},
    {"the first units", {"wte.*", "wpe.*", "h.0.*"}, false},
    {"a unit between others", {"h.1.*"}},
    {"the head and a block", {"ln_f.*", "h.0.*"}},
    {"all but the head", {"w*", "h.*"}, false}};

v1::JobSpec Job(const std::string& text, absl::string_view strategy, v1::DataType type,
                const Frozen& frozen, int64_t micro_batches, int64_t steps = 3) {
  v1::JobSpec spec = testing::TinyJob(text, strategy, type, micro_batches, steps);
  spec.mutable_model()->set_layers(3);
  spec.mutable_model()->set_tie_embeddings(frozen.tied);
  spec.mutable_train()->mutable_freeze()->Assign(frozen.patterns.begin(), frozen.patterns.end());
  const v1::InvalidFields wrong = ValidateJobSpec(spec);
  EXPECT_EQ(wrong.fields_size(), 0) << wrong.DebugString();
  return spec;
}

// Every strategy, several rounds, an odd world; ledgers stay exact, and the curve one.
TEST(FrozenParameters, KeepTheirBitsUnderEveryStrategy) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  for (const v1::DataType type : {v1::DATA_TYPE_FP32, v1::DATA_TYPE_BF16}) {
    for (const Frozen& frozen : kFrozen) {
      const auto job = [&](absl::string_view strategy) {
        return Job(text, strategy, type, frozen, /*micro_batches=*/4);
      };
      const Outcome reference = Train(job("zero3"), 1, frozen.name);
      ExpectOnlyTheOthersMoved(job("zero3"), reference.weights, frozen.name);
      for (const int world : {2, 4}) {
        for (const absl::string_view strategy : testing::StrategiesOf(world)) {
          const std::string what = absl::StrCat(frozen.name, " ", strategy, " × ", world);
          EXPECT_TRUE(Train(job(strategy), world, what) == reference) << what;
        }
      }
      for (const absl::string_view strategy : {"zero2", "zero3"}) {
        const std::string what = absl::StrCat(frozen.name, " ", strategy, " × 3");
        EXPECT_TRUE(Train(job(strategy), 3, what) == reference) << what;
      }
    }
  }
}

// Without copies of the state, in which the update is made in place; and with one bucket for all.
TEST(FrozenParameters, KeepTheirBitsWithoutVersionsAndInBuckets) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  for (const Frozen& frozen : kFrozen) {
    for (const absl::string_view strategy : {"ddp", "zero1", "zero1 all_reduce", "zero3"}) {
      v1::JobSpec spec = Job(text, strategy, v1::DATA_TYPE_BF16, frozen, /*micro_batches=*/4);
      const Outcome reference = Train(spec, 2, frozen.name);
      spec.mutable_elastic()->set_replicas(0);
      spec.mutable_parallel()->set_bucket_mb(25);
      EXPECT_TRUE(Train(spec, 2, frozen.name) == reference) << frozen.name << strategy;
    }
  }
}

// F2, F3: with members that hold the same, and with shares of gradients that are summed.
TEST(FrozenParameters, KeepTheirBitsInTensorParallelGroups) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  for (const bool sequence : {false, true}) {
    for (const Frozen& frozen : kFrozen) {
      for (const absl::string_view strategy : {"ddp", "zero2", "zero3"}) {
        v1::JobSpec spec = Job(text, strategy, v1::DATA_TYPE_FP32, frozen, /*micro_batches=*/2);
        spec.mutable_parallel()->set_tensor(2);
        spec.mutable_parallel()->set_sequence_parallel(sequence);
        spec.mutable_parallel()->set_recompute(sequence ? v1::RECOMPUTE_BLOCK : v1::RECOMPUTE_NONE);
        const std::string what = absl::StrCat(frozen.name, " ", strategy, sequence);
        ExpectOnlyTheOthersMoved(spec, Train(spec, 4, what).weights, what);
      }
    }
  }
}

// The norm that clipping goes by is that of what is trained.
TEST(FrozenParameters, DoNotEnterTheGradientNorm) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  const auto norm_of = [&](const std::vector<std::string>& patterns) {
    const v1::JobSpec spec = Job(text, "zero2", v1::DATA_TYPE_FP32, {"", patterns}, 2, 1);
    return std::bit_cast<double>(Train(spec, 2, "").curve[1]);
  };
  const double all = norm_of({});
  const double without = norm_of({"h.*"});
  const double others = norm_of({"w*", "ln_f.*"});
  EXPECT_NEAR(all * all, without * without + others * others, 1e-6 * all * all);
}

// Whatever is gone on with, moments of frozen parameters and their weights come from the
// checkpoint.
TEST(FrozenParameters, ComeBackFromACheckpoint) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  v1::JobSpec spec = Job(text, "zero3", v1::DATA_TYPE_BF16, kFrozen[0], 4, 5);
  spec.mutable_checkpoint()->set_every(3);
  const Outcome whole = Train(spec, 2, "saved");
  spec.mutable_checkpoint()->set_every(0);
  spec.mutable_checkpoint()->set_resume("latest");
  testing::SetStrategy("zero2", spec);
  const Outcome resumed = Train(spec, 3, "resumed");
  EXPECT_EQ(resumed.weights, whole.weights);
  EXPECT_TRUE(std::equal(resumed.curve.begin(), resumed.curve.end(), whole.curve.begin() + 6));
}

// grad_clip 0: every strategy trains as if there were no norm to go by.
TEST(UnclippedTraining, IsOneCurveUnderEveryStrategy) {
  TemporaryDirectory scratch;
  const std::string text = scratch.Write("train.txt", testing::MakeText(3000, 8));
  const auto job = [&](absl::string_view strategy, double clip) {
    v1::JobSpec spec = testing::TinyJob(text, strategy, v1::DATA_TYPE_BF16, 4, 4);
    spec.mutable_train()->set_grad_clip(clip);
    return spec;
  };
  const Outcome reference = Train(job("zero3", 0), 1, "alone");
  // No norm reaches such a limit; and a limit that all exceed changes the curve.
  EXPECT_TRUE(Train(job("zero3", 1e9), 1, "never clipped") == reference);
  EXPECT_FALSE(Train(job("zero3", 1e-3), 1, "always clipped") == reference);
  for (const int world : {2, 4}) {
    for (const absl::string_view strategy : testing::StrategiesOf(world)) {
      const std::string what = absl::StrCat(strategy, " × ", world);
      EXPECT_TRUE(Train(job(strategy, 0), world, what) == reference) << what;
    }
  }
}

}  // namespace
}  // namespace sherd
