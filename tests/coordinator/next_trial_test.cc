// Which layouts are tried, of lists made by hand.

#include "coordinator/core/next_trial.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two kinds differ in their shard groups.
TriedCandidate Layout(int64_t kind, int64_t micro_batch, bool fits = true) {
  TriedCandidate tried;
  tried.candidate.mutable_parallel()->set_strategy(v1::STRATEGY_HYBRID);
  tried.candidate.mutable_parallel()->set_shard_group(2 + kind);
  tried.candidate.set_micro_batch(micro_batch);
  tried.candidate.set_fits(fits);
  return tried;
}

constexpr int64_t kKinds = 7;

// Seven of micro-batch 2, then as many of 1, of 4 and of 8.
Trials SevenKinds() {
  Trials trials;
  for (const int64_t micro_batch : {2, 1, 4, 8}) {
    for (int64_t kind = 0; kind < kKinds; ++kind) {
      trials.candidates.push_back(Layout(kind, micro_batch));
    }
  }
  return trials;
}

// Their places of kind number 3, by micro-batch.
constexpr int64_t kOfTwo = 3;
constexpr int64_t kOfOne = kKinds + 3;
constexpr int64_t kOfFour = 2 * kKinds + 3;
constexpr int64_t kOfEight = 3 * kKinds + 3;

// Tries until nothing is left to try: what was tried, in order. `seconds`: of a step of the one at
// a place; 0: it fails for good.
std::vector<int64_t> TryAll(Trials& trials, const std::function<double(int64_t)>& seconds) {
  std::vector<int64_t> places;
  for (int64_t at = NextTrial(trials); at >= 0; at = NextTrial(trials)) {
    places.push_back(at);
    if (places.size() > 50) {
      ADD_FAILURE() << "there is no end of trials";
      break;
    }
    TriedCandidate& tried = trials.candidates[static_cast<size_t>(at)];
    ++tried.attempts;
    if (seconds(at) > 0) {
      tried.candidate.set_measured_step_seconds(seconds(at));
    } else {
      tried.failure = "out of memory";
    }
  }
  return places;
}

// The fastest is the third of a line of four.
double ThirdIsFastest(int64_t at) {
  if (at == kOfFour) return 1;
  return at == kOfTwo ? 4 : 10;
}

TEST(NextTrial, TheBestOfSixKindsAreTriedAndTwoNeighboursOfTheFastest) {
  Trials trials = SevenKinds();
  EXPECT_THAT(TryAll(trials, ThirdIsFastest), ElementsAre(0, 1, 2, 3, 4, 5, kOfOne, kOfFour));
  EXPECT_EQ(Fastest(trials), &trials.candidates[kOfFour]);
}

// There is nothing below it.
TEST(NextTrial, NeighboursAreThoseOfTheFastestByThen) {
  Trials trials = SevenKinds();
  const auto seconds = [](int64_t at) -> double {
    return at == kOfOne ? 1 : at == kOfTwo ? 4 : 10;
  };
  EXPECT_THAT(TryAll(trials, seconds), ElementsAre(0, 1, 2, 3, 4, 5, kOfOne));
}

// Its place is not given to another, and it is not tried again.
TEST(NextTrial, WhatFailedWasTried) {
  Trials trials = SevenKinds();
  const auto seconds = [](int64_t at) { return at == 0 ? 0 : ThirdIsFastest(at); };
  EXPECT_THAT(TryAll(trials, seconds), ElementsAre(0, 1, 2, 3, 4, 5, kOfOne, kOfFour));
}

// F20: neither as the best of its kind nor as a neighbour.
TEST(NextTrial, WhatDoesNotFitIsNeverTried) {
  Trials trials = SevenKinds();
  for (const int64_t at : {int64_t{0}, kOfFour}) {
    trials.candidates[static_cast<size_t>(at)].candidate.set_fits(false);
  }
  const auto seconds = [](int64_t at) -> double { return at == kOfTwo ? 4 : 10; };
  EXPECT_THAT(TryAll(trials, seconds), ElementsAre(1, 2, 3, 4, 5, 6, kOfOne, kOfEight));
}

TEST(NextTrial, OneAloneNeedsNoTrialAndTwoDo) {
  Trials trials;
  trials.candidates = {Layout(0, 1), Layout(1, 1, /*fits=*/false)};
  EXPECT_EQ(NextTrial(trials), -1);
  trials.candidates.push_back(Layout(2, 1));
  EXPECT_THAT(TryAll(trials, [](int64_t at) { return at == 0 ? 1.0 : 9.0; }), ElementsAre(0, 2));
}

TEST(NextTrial, WhereAllFailNothingIsTheFastest) {
  Trials trials = SevenKinds();
  EXPECT_THAT(TryAll(trials, [](int64_t) { return 0; }), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(Fastest(trials), nullptr);
  EXPECT_THAT(TryAll(trials, [](int64_t) { return 1; }), IsEmpty());
}

TEST(NextTrial, OfEqualFiguresTheFirstCounts) {
  Trials trials = SevenKinds();
  for (const size_t at : {2, 4, 5}) trials.candidates[at].candidate.set_measured_step_seconds(7);
  EXPECT_EQ(Fastest(trials), &trials.candidates[2]);
}

TEST(NextTrial, ATrialTakesAboutASecondInFourToAHundredSteps) {
  v1::Candidate candidate;
  const auto steps = [&](double predicted) {
    candidate.set_predicted_step_seconds(predicted);
    return TrialSteps(candidate);
  };
  EXPECT_EQ(steps(1e-9), 100);
  EXPECT_EQ(steps(0.004), 100);
  EXPECT_EQ(steps(0.1), 10);
  EXPECT_EQ(steps(0.2), 5);
  EXPECT_EQ(steps(3), 4);
  EXPECT_EQ(steps(1e9), 4);
  // What is known goes before what is predicted.
  candidate.set_measured_step_seconds(0.02);
  EXPECT_EQ(steps(3), 50);
}

}  // namespace
}  // namespace sherd
