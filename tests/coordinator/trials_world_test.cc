// A job of strategy auto whose world changes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/counted.h"
#include "coordinator/core/trials.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/candidates.h"
#include "plan/holdings.h"
#include "tests/coordinator/trial_scenario.h"

namespace sherd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Phase = Trials::Phase;

// Trains, commits `step`, and loses a worker for good.
void LoseOneAfter(Scenario& scenario, const JobId& id, const std::string& worker, int64_t step) {
  scenario.ReportAll(id, kReady);
  scenario.Do(Progressed(scenario.job(id), step));
  scenario.Do(Lost(worker, 1, "killed by signal 9 (SIGKILL)", step));
  scenario.ReleaseAll(id, step);
}

// A job of strategy auto whose micro-batch is open, too.
JobId SubmitOpen(Scenario& scenario, const JobRequest& request) {
  const JobId id = NextJobId(scenario.state(), request.name);
  v1::DurableEvent submitted = Submitted(id, request);
  submitted.mutable_job_submitted()->mutable_spec()->mutable_train()->set_micro_batch(0);
  scenario.Do(std::move(submitted));
  return id;
}

TEST(Trials, AWorldOfAnotherSizeIsDecidedAnewAtOnce) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  const v1::StrategyDecision first = MeasureToTheEnd(scenario, id, {0.5, 0.1});
  LoseOneAfter(scenario, id, "w3", 5);
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_FORMING);
  ASSERT_THAT(job.ranks, SizeIs(3));
  const auto decision = DecisionIn(scenario.Feed());
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->world(), 3);
  EXPECT_THAT(decision->reason(), HasSubstr("another size"));
  // Training goes on after what was committed, under the new layout, with the same batches.
  EXPECT_FALSE(AssignmentOf(scenario, id, 0).has_trial());
  EXPECT_EQ(job.restore.step, 5);
  EXPECT_EQ(job.spec.parallel().DebugString(), decision->chosen().parallel().DebugString());
  EXPECT_EQ(decision->chosen().micro_batch(), first.chosen().micro_batch());
  EXPECT_EQ(decision->chosen().parallel().tensor(), first.chosen().parallel().tensor());
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

// The job's batches stay cut as they are, and its state over the same tensor-parallel groups.
TEST(Trials, AWorldOfAnotherSizeKeepsMicroBatchAndTensorDegree) {
  for (const int64_t tensor : {1, 2}) {
    Scenario scenario;
    scenario.JoinWorkers(4);
    const JobId id = SubmitOpen(scenario, {.is_auto = true});
    // The first of the degree that is tried.
    std::string fastest;
    MeasureBy(scenario, id, [&](const v1::Candidate& candidate) {
      const std::string name = NameOf(candidate);
      if (fastest.empty() && candidate.parallel().tensor() == tensor) fastest = name;
      return name == fastest ? 0.1 : 10;
    });
    const v1::Candidate chosen = scenario.job(id).trials.decision->chosen();
    ASSERT_EQ(chosen.parallel().tensor(), tensor);
    scenario.ReportAll(id, kReady);
    scenario.Do(Progressed(scenario.job(id), 5));
    for (const char* worker : {"w2", "w3"}) {
      scenario.Do(Lost(worker, 1, "killed by signal 9 (SIGKILL)", 5));
    }
    scenario.ReleaseAll(id, 5);
    ASSERT_EQ(scenario.job(id).trials.decision->world(), 2);
    for (const v1::Candidate& candidate : scenario.job(id).trials.decision->candidates()) {
      EXPECT_EQ(candidate.parallel().tensor(), tensor);
      EXPECT_EQ(candidate.micro_batch(), chosen.micro_batch());
    }
  }
}

// What steps took, over what was predicted of them, by the layout's number in the list.
class CorrectedPredictions : public ::testing::Test {
 protected:
  // What is predicted of each layout when a job of four workers has lost as many.
  std::vector<v1::Candidate> PredictedAfter(int losses, const std::vector<double>& ratios) {
    Scenario scenario;
    const JobId id = SubmitAuto(scenario, 4);
    MeasureBy(scenario, id, [&](const v1::Candidate& candidate) {
      const auto at = static_cast<size_t>(scenario.job(id).trials.current);
      return ratios.at(at) * candidate.predicted_step_seconds();
    });
    tried_ = scenario.job(id).trials.candidates;
    for (int loss = 0; loss < losses; ++loss) {
      LoseOneAfter(scenario, id, absl::StrCat("w", 3 - loss), 5);
    }
    const v1::StrategyDecision& decision = *scenario.job(id).trials.decision;
    EXPECT_EQ(decision.world(), 4 - losses);
    EXPECT_THAT(decision.reason(),
                HasSubstr(absl::StrCat("measured with ", 5 - losses, " workers")));
    EXPECT_TRUE(SameLayout(decision.chosen(), decision.candidates(0)));
    return {decision.candidates().begin(), decision.candidates().end()};
  }
  // By how much its prediction is to be corrected.
  double RatioOf(const v1::Candidate& candidate, const std::vector<double>& ratios) const {
    double product = 1;
    int measured = 0;
    for (size_t at = 0; at < tried_.size(); ++at) {
      if (tried_[at].candidate.measured_step_seconds() == 0) continue;
      if (SameLayout(tried_[at].candidate, candidate)) return ratios[at];
      product *= ratios[at];
      ++measured;
    }
    return std::pow(product, 1.0 / measured);
  }

  std::vector<TriedCandidate> tried_;
};

// Its own ratio where it was measured itself, and else the geometric mean of all.
TEST_F(CorrectedPredictions, AreOfWhatWasMeasuredWithTheFirstWorld) {
  const std::vector<double> exact(64, 1);
  std::vector<double> ratios(64, 1);
  for (size_t at = 0; at < ratios.size(); ++at) ratios[at] = 1.5 + static_cast<double>(at % 7);
  for (const int losses : {1, 2}) {
    const std::vector<v1::Candidate> plain = PredictedAfter(losses, exact);
    const std::vector<v1::Candidate> corrected = PredictedAfter(losses, ratios);
    ASSERT_EQ(corrected.size(), plain.size());
    int own = 0;
    for (size_t at = 0; at < corrected.size(); ++at) {
      const v1::Candidate& candidate = corrected[at];
      if (at > 0) {
        EXPECT_GE(candidate.predicted_step_seconds(), corrected[at - 1].predicted_step_seconds());
      }
      const auto same = std::find_if(plain.begin(), plain.end(), [&](const v1::Candidate& other) {
        return SameLayout(other, candidate);
      });
      ASSERT_NE(same, plain.end());
      const double ratio = RatioOf(candidate, ratios);
      EXPECT_NEAR(candidate.predicted_step_seconds() / same->predicted_step_seconds(), ratio,
                  1e-9 * ratio)
          << NameOf(candidate);
      own += std::count(ratios.begin(), ratios.end(), ratio) > 0;
    }
    EXPECT_GT(own, 0);
    EXPECT_LT(own, std::ssize(corrected)) << "nobody is corrected by the others";
  }
}

// A job whose workers are of as many hosts, each with so much memory; 0: nobody knows how much.
JobId SubmitApart(Scenario& scenario, int workers, int64_t memory_bytes) {
  for (int number = 0; number < workers; ++number) {
    v1::DurableEvent joined = Joined(absl::StrCat("w", number), 1, absl::StrCat("host", number));
    joined.mutable_worker_joined()->set_memory_bytes(memory_bytes);
    scenario.Do(joined);
  }
  return scenario.Submit({.is_auto = true});
}

// What the thriftiest layout of such a job needs of a rank's memory.
int64_t LeastBytes(int workers) {
  Scenario scenario;
  const JobId id = SubmitApart(scenario, workers, 0);
  scenario.MeasureAll(id, 0);
  int64_t least = INT64_MAX;
  for (const TriedCandidate& tried : scenario.job(id).trials.candidates) {
    least = std::min(least, tried.candidate.peak_bytes());
  }
  return least;
}

TEST(Trials, WhereNothingFitsTheReasonSaysHowMuchWouldDo) {
  const int64_t least = LeastBytes(3);
  Scenario scenario;
  const JobId id = SubmitApart(scenario, 3, least - 1);
  scenario.MeasureAll(id, 0);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason,
              HasSubstr(absl::StrCat("the smallest needs ", Counted(least, "byte"), " a rank")));
}

// F20: of the smaller world what fits goes before what is faster; where nothing does, what comes
// nearest to it.
TEST(Trials, AWorldOfAnotherSizeTakesWhatFits) {
  const int64_t least_of_three = LeastBytes(3);
  const int64_t least_of_two = LeastBytes(2);
  ASSERT_LT(least_of_three, least_of_two);
  for (const int64_t memory : {least_of_two, least_of_three}) {
    Scenario scenario;
    const JobId id = SubmitApart(scenario, 3, memory);
    MeasureToTheEnd(scenario, id);
    LoseOneAfter(scenario, id, "w2", 5);
    const v1::Candidate& chosen = scenario.job(id).trials.decision->chosen();
    EXPECT_EQ(chosen.fits(), memory == least_of_two);
    EXPECT_EQ(chosen.peak_bytes(), least_of_two);
    EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  }
}

// Its candidates are listed anew, and what a rank told of the broken measurement is forgotten.
TEST(Trials, AWorldThatShrinksMeanwhileIsMeasuredFromTheStart) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 3);
  scenario.MeasureAll(id, 0);
  scenario.MeasureAll(id, 3);
  scenario.ReportAll(id, kReady);
  scenario.Do(Measured(scenario.job(id), 2, 9));
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)"));
  scenario.ReleaseAll(id, 0);
  ASSERT_THAT(scenario.job(id).ranks, SizeIs(2));
  EXPECT_EQ(scenario.job(id).trials.phase, Phase::kTrial);
  EXPECT_EQ(scenario.job(id).trials.world, 2);
  EXPECT_EQ(scenario.job(id).trials.current, 0);
  for (const TriedCandidate& tried : scenario.job(id).trials.candidates) {
    EXPECT_EQ(tried.candidate.measured_step_seconds(), 0);
  }
  scenario.MeasureAll(id, 1);
  EXPECT_EQ(scenario.job(id).trials.candidates.front().candidate.measured_step_seconds(), 1);
  EXPECT_EQ(MeasureToTheEnd(scenario, id).world(), 2);
}

// They would have it begin again and again.
TEST(Trials, WorkersThatComeMeanwhileAreTakenWhenItTrains) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2);
  MeasureBy(scenario, id, [&](const v1::Candidate&) {
    if (FindWorker(scenario.state(), WorkerId("w2")) == nullptr) scenario.Do(Joined("w2", 1));
    EXPECT_THAT(scenario.job(id).ranks, SizeIs(2));
    return 1;
  });
  EXPECT_EQ(scenario.job(id).trials.decision->world(), 2);
  scenario.ReportAll(id, kReady);
  scenario.Do(Progressed(scenario.job(id), 5));
  EXPECT_EQ(scenario.job(id).reason, "the world grows from 2 to 3 workers");
  scenario.ReleaseAll(id, 5);
  ASSERT_THAT(scenario.job(id).ranks, SizeIs(3));
  EXPECT_EQ(scenario.job(id).trials.decision->world(), 3);
  EXPECT_EQ(scenario.job(id).restore.step, 5);
}

// A layout that is only tried binds no world.
TEST(Trials, AWorldNeedNotBeAMultipleOfATensorDegreeThatIsTried) {
  Scenario scenario;
  scenario.JoinWorkers(4);
  const JobId id = SubmitOpen(scenario, {.is_auto = true});
  scenario.MeasureAll(id, 0);
  for (int kind = 0; kind < 6 && Tried(scenario.job(id)).parallel().tensor() == 1; ++kind) {
    scenario.MeasureAll(id, 10 * kind + 1);
    ASSERT_TRUE(IsUndecided(scenario.job(id))) << "no tensor degree was tried";
  }
  scenario.ReportAll(id, kReady);
  scenario.Do(Lost("w3", 1, "killed by signal 9 (SIGKILL)"));
  scenario.ReleaseAll(id, 0);
  EXPECT_THAT(scenario.job(id).ranks, SizeIs(3));
}

TEST(Trials, LayoutsOfTheLastEpochsAreRemembered) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 1);
  MeasureToTheEnd(scenario, id);
  for (int64_t step = 1; step <= 100; ++step) {
    scenario.ReportAll(id, kReady);
    scenario.Do(Progressed(scenario.job(id), step));
    scenario.Do(Failed(scenario.job(id), 0, "no luck", step));
    scenario.ReleaseAll(id, step);
  }
  const Trials& trials = scenario.job(id).trials;
  EXPECT_THAT(trials.layouts, SizeIs(64));
  EXPECT_EQ(trials.layouts.rbegin()->first, scenario.job(id).epoch.value());
  EXPECT_EQ(trials.layouts.begin()->first, scenario.job(id).epoch.value() - 63);
}

TEST(Trials, AWorldOfTheSameSizeKeepsItsLayout) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  const v1::StrategyDecision first = MeasureToTheEnd(scenario, id, {0.5, 0.1});
  scenario.Do(Joined("w4", 1));
  LoseOneAfter(scenario, id, "w3", 5);
  ASSERT_THAT(scenario.job(id).ranks, SizeIs(4));
  EXPECT_FALSE(DecisionIn(scenario.Feed()));
  EXPECT_EQ(scenario.job(id).spec.parallel().DebugString(),
            first.chosen().parallel().DebugString());
}

// The version of the old world is cut as that was: every rank gets all it needs of it.
TEST(Trials, AVersionOfAnotherLayoutIsReadAsItWasCut) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  // Strategies are tried in the order of the list: the first that cuts its state is made fastest.
  MeasureBy(scenario, id, [](const v1::Candidate& candidate) {
    const bool cut =
        candidate.parallel().strategy() != v1::STRATEGY_DDP && candidate.parallel().tensor() == 1;
    return cut ? 0.1 : 10;
  });
  const v1::ParallelSpec before = scenario.job(id).spec.parallel();
  LoseOneAfter(scenario, id, "w1", 5);
  const JobRecord& job = scenario.job(id);
  ASSERT_TRUE(job.restore.version);
  for (int rank = 0; rank < static_cast<int>(job.ranks.size()); ++rank) {
    const v1::RestorePlan plan = AssignmentOf(scenario, id, rank).restore();
    EXPECT_EQ(plan.parallel().DebugString(), before.DebugString());
    const std::vector<int> parts =
        SourceParts(before, job.spec, 4, static_cast<int>(job.ranks.size()), rank);
    EXPECT_EQ(plan.sources_size(), std::ssize(parts));
    EXPECT_THAT(parts, Not(IsEmpty()));
  }
}

// Shard groups are chosen for the world, so they do not bind it.
TEST(Trials, HybridLeavesEveryWorldOpen) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  MeasureBy(scenario, id, [](const v1::Candidate& candidate) {
    return candidate.parallel().strategy() == v1::STRATEGY_HYBRID ? 0.01 : 10;
  });
  ASSERT_EQ(scenario.job(id).spec.parallel().strategy(), v1::STRATEGY_HYBRID)
      << "it was not among those that were tried";
  LoseOneAfter(scenario, id, "w3", 5);
  EXPECT_THAT(scenario.job(id).ranks, SizeIs(3));
}

}  // namespace
}  // namespace sherd
