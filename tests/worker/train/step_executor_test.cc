// The executor against a communicator that is as late as it may be: an operation moves its data
// only when somebody waits for it or for a later one.
#include "worker/train/step_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"
#include "tests/worker/train/executed_steps.h"

namespace sherd {
namespace {

// F8: with every strategy, schedule and bucket size, on the first and the last rank.
TEST(StepExecutor, TouchesNoBufferThatACollectiveStillUses) {
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    for (const int64_t rounds : {1, 3}) {
      for (const int64_t prefetch : {0, 1, 2, 5}) {
        for (const bool tied : {true, false}) {
          v1::JobSpec spec = testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4 * rounds,
                                              {.layers = 5, .hidden = 16});
          spec.mutable_parallel()->set_prefetch(prefetch);
          spec.mutable_parallel()->set_bucket_mb(rounds == 1 ? 0 : 25);
          spec.mutable_model()->set_tie_embeddings(tied);
          SCOPED_TRACE(absl::StrCat(strategy, " rounds ", rounds, " prefetch ", prefetch));
          for (const int rank : {0, 3}) TwoSteps(spec, rank, 4);
        }
      }
    }
  }
}

// F8: gradients that nobody reduces leave no buffer behind, and take none that is read.
TEST(StepExecutor, TouchesNoBufferThatIsUsedBesideFrozenUnits) {
  const std::vector<std::vector<std::string>> frozen = {
      {"h.1.*", "h.3.*"}, {"w*", "h.0.*", "h.2.*", "h.3.*"}, {"h.0.*", "h.4.*", "ln_f.*"}};
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    for (const int64_t rounds : {1, 3}) {
      for (const std::vector<std::string>& patterns : frozen) {
        v1::JobSpec spec =
            testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4 * rounds, {.layers = 5, .hidden = 16});
        spec.mutable_train()->mutable_freeze()->Assign(patterns.begin(), patterns.end());
        spec.mutable_parallel()->set_bucket_mb(rounds == 1 ? 25 : 0);
        SCOPED_TRACE(absl::StrCat(strategy, " rounds ", rounds, " without ", patterns.front()));
        for (const int rank : {0, 3}) TwoSteps(spec, rank, 4);
      }
    }
  }
}

// F8: what is counted and updated is what was summed, never what was there before. Every rank sends
// the same whole numbers, so all strategies have one norm, to the bit.
TEST(StepExecutor, CountsWhatWasReduced) {
  for (const int64_t rounds : {1, 4}) {
    for (const int64_t bucket_mb : {0, 25}) {
      std::vector<double> norms;
      for (const absl::string_view strategy : testing::kStrategies) {
        v1::JobSpec spec =
            testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4 * rounds, {.layers = 5, .hidden = 16});
        spec.mutable_parallel()->set_bucket_mb(bucket_mb);
        const ObservedSteps observed = TwoSteps(spec, 0, 4);
        ASSERT_EQ(observed.norms.size(), 2u);
        if (norms.empty()) norms = observed.norms;
        EXPECT_EQ(observed.norms, norms) << strategy << " rounds " << rounds;
      }
      // Four ranks' gradients, each at least 1: their sums' norm is at least that of fours.
      const int64_t elements =
          BuildRankPlan(testing::MakeJob("ddp", v1::DATA_TYPE_FP32, 4, {.layers = 5, .hidden = 16}),
                        0, 1)
              .inventory.elements;
      EXPECT_GE(norms[0], 4.0 * std::sqrt(static_cast<double>(elements)) * 0.9);
    }
  }
}

// F1, F8: what is updated is the sum over all ranks and rounds; under hybrid sharding shards are
// summed over the replicas only once all of their own replica's gradients are in them.
TEST(StepExecutor, UpdatesWithTheSumOfAllGradients) {
  for (const int64_t rounds : {1, 4}) {
    const auto train = [&](absl::string_view strategy, int ranks) {
      v1::JobSpec spec = testing::MakeJob(strategy, v1::DATA_TYPE_FP32, ranks * rounds,
                                          {.layers = 5, .hidden = 16});
      spec.mutable_train()->set_grad_clip(0);
      return TwoSteps(spec, 0, ranks);
    };
    const ObservedSteps alone = train("ddp", 1);
    EXPECT_GT(alone.first_moment, 0);
    for (const absl::string_view strategy : testing::StrategiesOf(4)) {
      const ObservedSteps shared = train(strategy, 4);
      EXPECT_EQ(shared.first_moment, 4 * alone.first_moment) << strategy << " rounds " << rounds;
      // All four records are rank 0's: four times a quarter of the gradients, or a half under
      // hybrid sharding. The first part is never the smallest.
      const double counted = strategy == "hybrid 2" ? std::sqrt(2.0) : 1;
      EXPECT_NEAR(shared.norms[0], 4 * counted * alone.norms[0], 0.02 * shared.norms[0])
          << strategy << " rounds " << rounds;
    }
  }
}

// Section 4: min(1, clip / (norm + 1e-6)), also where the norm is so small that the addend tells.
TEST(StepExecutor, ClipsByTheCoefficientOfTheNorm) {
  const auto step = [](float gradient_scale, double clip) {
    v1::JobSpec spec =
        testing::MakeJob("zero2", v1::DATA_TYPE_FP32, 2, {.layers = 5, .hidden = 16});
    spec.mutable_train()->set_grad_clip(clip);
    return TwoSteps(spec, 0, 2, {.gradient_scale = gradient_scale});
  };
  for (const float gradient_scale : {1.0f, 1e-9f}) {
    const ObservedSteps unclipped = step(gradient_scale, 0);
    const double norm = unclipped.norms[0];
    for (const double part : {0.2, 0.9, 1.5, 30.0}) {
      const double coefficient = std::min(1.0, part * norm / (norm + 1e-6));
      EXPECT_NEAR(step(gradient_scale, part * norm).first_moment / unclipped.first_moment,
                  coefficient, 1e-6 * coefficient)
          << "a clip of " << part << " norms of " << norm;
    }
  }
}

// F15: either of loss and norm is enough, and nothing is updated.
TEST(StepExecutor, UpdatesNothingWhenLossOrNormIsNoNumber) {
  constexpr auto kInfinite = std::numeric_limits<float>::infinity();
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    const v1::JobSpec spec =
        testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 4, {.layers = 5, .hidden = 16});
    for (const MadeUpFigures& figures :
         {MadeUpFigures{.gradient_scale = kInfinite, .outcome = absl::StatusCode::kDataLoss},
          MadeUpFigures{.loss = kInfinite, .outcome = absl::StatusCode::kDataLoss}}) {
      EXPECT_EQ(TwoSteps(spec, 0, 4, figures).first_moment, 0) << strategy;
    }
  }
}

// F17: no room is taken that the step does without.
TEST(StepExecutor, UsesEveryRoomForUnitsThatIsPlanned) {
  for (const absl::string_view strategy : {"zero2", "zero3", "zero3 kept"}) {
    for (const int64_t prefetch : {0, 1, 2, 3}) {
      v1::JobSpec spec =
          testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 3, {.layers = 5, .hidden = 16});
      spec.mutable_parallel()->set_prefetch(prefetch);
      const ObservedSteps observed = TwoSteps(spec, 0, 3);
      const RankPlan plan = BuildRankPlan(spec, 0, 3);
      EXPECT_EQ(static_cast<int64_t>(observed.block_grads.size()), GradientSlots(plan));
      if (strategy == "zero2") continue;
      EXPECT_EQ(static_cast<int>(observed.block_params.size()),
                MaxGatheredBlocks(plan.step, plan.inventory))
          << strategy << " prefetch " << prefetch;
    }
  }
}

// F15: a step that was not to be updated with leaves nothing behind: trained again, it is as if it
// had been trained once.
TEST(StepExecutor, TrainsAStepAgainAfterALossThatIsNoNumber) {
  for (const absl::string_view strategy : testing::StrategiesOf(4)) {
    SCOPED_TRACE(strategy);
    const v1::JobSpec spec =
        testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 12, {.layers = 3, .hidden = 16});
    const ObservedSteps undisturbed = TwoSteps(spec, 1, 4);
    const ObservedSteps repeated = TwoSteps(spec, 1, 4, {.diverges_once = true});
    EXPECT_EQ(repeated.norms, undisturbed.norms);
    EXPECT_EQ(repeated.first_moment, undisturbed.first_moment);
  }
}

// F9: reductions go on beside the next backward, gathers beside the computation before the one that
// needs them. Seven units, two steps.
TEST(StepExecutor, ComputesWhileCollectivesAreUnderWay) {
  const auto overlap = [](absl::string_view strategy, int64_t prefetch) {
    v1::JobSpec spec =
        testing::MakeJob(strategy, v1::DATA_TYPE_FP32, 3, {.layers = 5, .hidden = 16});
    spec.mutable_parallel()->set_prefetch(prefetch);
    return TwoSteps(spec, 1, 3);
  };
  for (const absl::string_view strategy : testing::kStrategies) {
    // All but the head's, which is the first.
    EXPECT_EQ(overlap(strategy, 1).backwards_beside_reductions, 2 * 6) << strategy;
  }
  // All but the head's, with which the last gather ends.
  EXPECT_EQ(overlap("zero3", 1).forwards_beside_gathers, 2 * 6);
  EXPECT_EQ(overlap("zero3", 0).forwards_beside_gathers, 0);
  // The second step's forwards run beside the gathers that follow the first one's update.
  EXPECT_EQ(overlap("zero1", 1).forwards_beside_gathers, 6);
  EXPECT_EQ(overlap("zero2", 1).forwards_beside_gathers, 6);
  // Blocks 4…1 are gathered ahead of their backward, beside the head's and those of 4…2; block 0's
  // beside that of 1.
  EXPECT_EQ(overlap("zero3", 1).backwards_beside_gathers, 2 * 5);
  EXPECT_EQ(overlap("zero3", 0).backwards_beside_gathers, 0);
}

}  // namespace
}  // namespace sherd
