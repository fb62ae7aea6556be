// The layouts that a job of strategy auto may have, and their order.

#include "plan/candidates.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/cost_profiles.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Of four heads, and a global batch of 24 sequences.
v1::JobSpec AutoJob() {
  v1::JobSpec spec =
      testing::MakeJob("zero3", v1::DATA_TYPE_BF16, 24, {.layers = 2, .hidden = 64, .heads = 4});
  spec.mutable_parallel()->Clear();
  spec.mutable_parallel()->set_strategy(v1::STRATEGY_AUTO);
  spec.mutable_train()->set_micro_batch(0);
  spec.mutable_train()->set_global_batch(24);
  return NormalizeJobSpec(spec);
}

CostModel Profile() { return *FindCostProfile("cpu"); }

std::vector<v1::Candidate> List(const v1::JobSpec& spec, const CandidateWorld& world) {
  return ListCandidates(spec, world, [](const v1::ParallelSpec&) { return Profile(); });
}

std::vector<std::string> NamesOf(const std::vector<v1::Candidate>& candidates) {
  std::vector<std::string> names;
  for (const v1::Candidate& candidate : candidates) names.push_back(NameOf(candidate));
  return names;
}

template <typename Value, typename Get>
std::set<Value> Values(const std::vector<v1::Candidate>& candidates, Get get) {
  std::set<Value> values;
  for (const v1::Candidate& candidate : candidates) values.insert(get(candidate));
  return values;
}

std::set<int64_t> MicroBatches(const std::vector<v1::Candidate>& candidates) {
  return Values<int64_t>(candidates, [](const auto& c) { return c.micro_batch(); });
}

std::set<int64_t> Tensors(const std::vector<v1::Candidate>& candidates) {
  return Values<int64_t>(candidates, [](const auto& c) { return c.parallel().tensor(); });
}

TEST(Candidates, AJobThatLeavesKeysOpenIsValid) {
  const v1::JobSpec spec = AutoJob();
  EXPECT_EQ(spec.train().micro_batch(), 0);
  EXPECT_EQ(spec.parallel().tensor(), 0);
  EXPECT_EQ(ValidateJobSpec(spec).ShortDebugString(), "");
  EXPECT_EQ(NormalizeJobSpec(spec).DebugString(), spec.DebugString());
}

TEST(Candidates, EveryOneIsAJobThatRunsOnTheWorld) {
  const v1::JobSpec spec = AutoJob();
  const CandidateWorld world{.ranks = 4, .tensor_degrees = {1, 2, 4}, .limits = {}};
  const std::vector<v1::Candidate> candidates = List(spec, world);
  ASSERT_GT(candidates.size(), 20u);
  for (const v1::Candidate& candidate : candidates) {
    const v1::JobSpec job = WithCandidate(spec, candidate);
    ASSERT_EQ(ValidateJobSpec(job).ShortDebugString(), "") << NameOf(candidate);
    const RankPlan plan = BuildRankPlan(job, 0, world.ranks);
    EXPECT_EQ(candidate.peak_bytes(), PredictLedger(plan, job).memory().at("peak").predicted());
    EXPECT_EQ(candidate.predicted_step_seconds(), EstimateStep(plan, job, Profile()).step);
    EXPECT_TRUE(candidate.fits());
  }
  EXPECT_THAT(Tensors(candidates), ElementsAre(1, 2, 4));
}

TEST(Candidates, AllStrategiesAreAmongThemAndNoneTwice) {
  const std::vector<v1::Candidate> candidates = List(AutoJob(), {.ranks = 4});
  const std::vector<std::string> names = NamesOf(candidates);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  const std::set<std::string> kinds =
      Values<std::string>(candidates, [](const auto& c) { return NameOf(ChoiceOf(c.parallel())); });
  EXPECT_THAT(kinds, ElementsAre("ddp", "hybrid", "zero1", "zero1 all_reduce", "zero2", "zero3",
                                 "zero3 kept"));
}

// 4 is less than half as large again as 3; 24 is the global batch itself.
TEST(Candidates, MicroBatchesAreDivisorsFarEnoughApart) {
  EXPECT_THAT(MicroBatches(List(AutoJob(), {.ranks = 2})), ElementsAre(1, 2, 3, 6, 12, 24));
}

TEST(Candidates, WhatTheJobsFileGivesIsKept) {
  v1::JobSpec spec = AutoJob();
  spec.mutable_train()->set_micro_batch(4);
  spec.mutable_parallel()->set_tensor(2);
  spec.mutable_parallel()->set_recompute(v1::RECOMPUTE_BLOCK);
  spec.mutable_parallel()->set_reshard_after_forward(false);
  spec.mutable_parallel()->set_zero1_gradients(v1::GRADIENT_REDUCTION_ALL_REDUCE);
  const std::vector<v1::Candidate> candidates =
      List(spec, {.ranks = 4, .tensor_degrees = {1, 2, 4}, .limits = {}});
  EXPECT_THAT(MicroBatches(candidates), ElementsAre(4));
  EXPECT_THAT(Tensors(candidates), ElementsAre(2));
  for (const v1::Candidate& candidate : candidates) {
    EXPECT_EQ(candidate.parallel().recompute(), v1::RECOMPUTE_BLOCK);
  }
  const std::vector<std::string> names = NamesOf(candidates);
  const std::string rest = ", tensor 2, recompute block, micro_batch 4";
  EXPECT_THAT(names, Contains("zero3 kept" + rest));
  EXPECT_THAT(names, Not(Contains("zero3" + rest)));
  EXPECT_THAT(names, Contains("zero1 all_reduce" + rest));
  EXPECT_THAT(names, Not(Contains("zero1" + rest)));
}

// 4 heads have no three parts, and ranks of several domains make no group.
TEST(Candidates, TensorDegreesFitTheModelAndTheWorld) {
  EXPECT_THAT(Tensors(List(AutoJob(), {.ranks = 6, .tensor_degrees = {1, 2, 3, 6}, .limits = {}})),
              ElementsAre(1, 2));
  EXPECT_THAT(Tensors(List(AutoJob(), {.ranks = 4, .tensor_degrees = {1}, .limits = {}})),
              ElementsAre(1));
}

TEST(Candidates, ASingleRankHasNothingToShard) {
  for (const v1::Candidate& candidate : List(AutoJob(), {.ranks = 1})) {
    EXPECT_EQ(candidate.parallel().strategy(), v1::STRATEGY_DDP);
  }
}

TEST(Candidates, ShardGroupsAreTrueDivisorsOfTheDataParallelDegree) {
  const std::vector<v1::Candidate> candidates = List(AutoJob(), {.ranks = 12});
  std::set<int64_t> groups;
  for (const v1::Candidate& candidate : candidates) {
    if (candidate.parallel().strategy() == v1::STRATEGY_HYBRID) {
      groups.insert(candidate.parallel().shard_group());
    }
  }
  EXPECT_THAT(groups, ElementsAre(2, 3, 4, 6));
}

// F20: what does not fit comes last, whatever its speed.
TEST(Candidates, ThoseThatDoNotFitComeLast) {
  const std::vector<v1::Candidate> all = List(AutoJob(), {.ranks = 4});
  std::vector<int64_t> peaks;
  for (const v1::Candidate& candidate : all) peaks.push_back(candidate.peak_bytes());
  std::nth_element(peaks.begin(), peaks.begin() + 10, peaks.end());
  const int64_t room = peaks[10];
  for (const MemoryLimits& limits :
       std::vector<MemoryLimits>{{.device = room}, {.host = 4 * room + 3, .workers_per_host = 4}}) {
    const std::vector<v1::Candidate> some =
        List(AutoJob(), {.ranks = 4, .tensor_degrees = {1}, .limits = limits});
    bool fits = true;
    int64_t count = 0;
    double last = 0;
    for (const v1::Candidate& candidate : some) {
      EXPECT_EQ(candidate.fits(), candidate.peak_bytes() <= room);
      EXPECT_TRUE(fits || !candidate.fits()) << NameOf(candidate) << " comes too late";
      if (candidate.fits() != fits) last = 0;
      fits = candidate.fits();
      count += fits;
      EXPECT_GE(candidate.predicted_step_seconds(), last);
      last = candidate.predicted_step_seconds();
    }
    EXPECT_GT(count, 0);
    EXPECT_LT(count, std::ssize(some));
  }
}

// Of equal speed the one that needs less memory; then as the strategies come.
TEST(Candidates, TiesAreBrokenByMemoryThenByOrder) {
  constexpr double kInstant = std::numeric_limits<double>::infinity();
  const CostModel instant{.flops = kInstant, .bandwidth = kInstant, .tensor_bandwidth = kInstant};
  const std::vector<v1::Candidate> candidates =
      ListCandidates(AutoJob(), {.ranks = 2}, [&](const v1::ParallelSpec&) { return instant; });
  const auto order = [](const v1::Candidate& candidate) {
    const auto choices = StrategyChoices();
    return std::find_if(choices.begin(), choices.end(),
                        [&](const StrategyChoice& choice) {
                          return NameOf(choice) == NameOf(ChoiceOf(candidate.parallel()));
                        }) -
           choices.begin();
  };
  for (size_t at = 1; at < candidates.size(); ++at) {
    ASSERT_EQ(candidates[at].predicted_step_seconds(), 0);
    ASSERT_GE(candidates[at].peak_bytes(), candidates[at - 1].peak_bytes());
    if (candidates[at].peak_bytes() == candidates[at - 1].peak_bytes()) {
      EXPECT_GE(order(candidates[at]), order(candidates[at - 1]));
    }
  }
}

TEST(Candidates, TheShortlistHasTheBestOfEveryKindThatFits) {
  std::vector<v1::Candidate> candidates = List(AutoJob(), {.ranks = 4});
  candidates[0].set_fits(false);
  const std::vector<size_t> shortlist = Shortlist(candidates, 6);
  ASSERT_EQ(shortlist.size(), 6u);
  EXPECT_TRUE(std::is_sorted(shortlist.begin(), shortlist.end()));
  for (size_t i = 0; i < shortlist.size(); ++i) {
    EXPECT_TRUE(candidates[shortlist[i]].fits());
    for (size_t better = 1; better < shortlist[i]; ++better) {
      EXPECT_FALSE(SameKind(candidates[better], candidates[shortlist[i]]) &&
                   candidates[better].fits());
    }
  }
}

TEST(Candidates, WithFewKindsTheShortlistIsFilledUp) {
  const std::vector<v1::Candidate> candidates = List(AutoJob(), {.ranks = 1});
  ASSERT_GT(candidates.size(), 3u);
  EXPECT_THAT(Shortlist(candidates, 3), ElementsAre(0, 1, 2));
}

TEST(Candidates, NeighboursHaveTheNextMicroBatches) {
  const std::vector<v1::Candidate> candidates = List(AutoJob(), {.ranks = 2});
  const auto found = std::find_if(
      candidates.begin(), candidates.end(),
      [](const v1::Candidate& candidate) { return NameOf(candidate) == "zero2, micro_batch 3"; });
  ASSERT_NE(found, candidates.end());
  std::vector<std::string> names;
  for (const size_t at : Neighbours(candidates, static_cast<size_t>(found - candidates.begin()))) {
    names.push_back(NameOf(candidates[at]));
  }
  EXPECT_THAT(names, ElementsAre("zero2, micro_batch 2", "zero2, micro_batch 6"));
}

// Their plans would take too long to make: the time is that of shorter ones, drawn out.
TEST(Candidates, StepsOfManyMicroBatchesArePredictedFromShorterOnes) {
  v1::JobSpec spec = AutoJob();
  spec.mutable_train()->set_global_batch(1 << 12);
  for (const v1::Candidate& candidate : List(spec, {.ranks = 4})) {
    if (candidate.micro_batch() > 1) continue;
    const v1::JobSpec job = WithCandidate(spec, candidate);
    const RankPlan plan = BuildRankPlan(job, 0, 4);
    ASSERT_EQ(plan.micro_batches.rounds, 1 << 10);
    EXPECT_EQ(candidate.peak_bytes(), PredictLedger(plan, job).memory().at("peak").predicted());
    const double exact = EstimateStep(plan, job, Profile()).step;
    EXPECT_NEAR(candidate.predicted_step_seconds(), exact, 1e-6 * exact) << NameOf(candidate);
  }
}

}  // namespace
}  // namespace sherd
