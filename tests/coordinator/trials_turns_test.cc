// Trials that are repeated: what a machine does besides must not decide.

#include <cstdint>
#include <vector>

#include "coordinator/core/trials.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/candidates.h"
#include "tests/coordinator/trial_scenario.h"

namespace sherd {
namespace {

using ::testing::ElementsAre;

// A job of four workers for which there are six kinds of layouts and no other micro-batch.
class TrialTurns : public ::testing::Test {
 protected:
  void SetUp() override {
    id_ = SubmitAuto(scenario_, 4);
    scenario_.MeasureAll(id_, 0);
  }

  const JobRecord& job() const { return scenario_.job(id_); }
  const TriedCandidate& candidate(int64_t at) const {
    return job().trials.candidates[static_cast<size_t>(at)];
  }
  // Measures as long as it is undecided, at most so many times; the places that were tried.
  std::vector<int64_t> Measure(const std::vector<double>& steps) {
    std::vector<int64_t> tried;
    for (const double seconds : steps) {
      if (!IsUndecided(job())) break;
      tried.push_back(job().trials.current);
      scenario_.MeasureAll(id_, seconds);
    }
    return tried;
  }
  // The first six, each once.
  void MeasureAll(const std::vector<double>& steps) {
    ASSERT_EQ(steps.size(), 6u);
    ASSERT_THAT(Measure(steps), ElementsAre(0, 1, 2, 3, 4, 5));
  }
  int64_t Chosen() const {
    EXPECT_FALSE(IsUndecided(job()));
    for (int64_t at = 0; at < std::ssize(job().trials.candidates); ++at) {
      if (SameLayout(candidate(at).candidate, job().trials.decision->chosen())) return at;
    }
    return -1;
  }

  Scenario scenario_;
  JobId id_;
};

TEST_F(TrialTurns, ThoseNearTheFastestTakeTurnsAndTheSmallestFigureCounts) {
  MeasureAll({5, 1.2, 1, 5, 5, 5});
  // With the last one nothing is near it any more.
  EXPECT_THAT(Measure({0.95, 1, 0.97, 0.96, 0.5, 9}), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_EQ(Chosen(), 1);
  EXPECT_EQ(job().trials.decision->chosen().measured_step_seconds(), 0.5);
}

// What was slow because of the machine is found out by the next turn.
TEST_F(TrialTurns, ASlowFirstTrialIsMadeUpFor) {
  MeasureAll({1, 1.45, 5, 5, 5, 5});
  EXPECT_THAT(Measure({1, 0.8, 1, 1}), ElementsAre(0, 1));
  EXPECT_EQ(Chosen(), 1);
}

TEST_F(TrialTurns, ThereAreNoneWhereTheFastestIsClear) {
  MeasureAll({1, 1.6, 2, 3, 2, 2});
  EXPECT_EQ(Chosen(), 0);
}

// Half as long again, then a fifth longer, then 8 %.
TEST_F(TrialTurns, EveryTurnIsOfNearerOnes) {
  MeasureAll({1, 1.5, 1.51, 5, 5, 5});
  EXPECT_THAT(Measure({1, 1.2, 1, 1.08, 1, 1, 1, 1}), ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST_F(TrialTurns, TheSecondIsOfNoneThatTakesMoreThanAFifthLonger) {
  MeasureAll({1, 1.5, 5, 5, 5, 5});
  EXPECT_THAT(Measure({1, 1.21, 1, 1}), ElementsAre(0, 1));
}

TEST_F(TrialTurns, TheThirdIsOfNoneThatTakesMoreThanEightPercentLonger) {
  MeasureAll({1, 1.5, 5, 5, 5, 5});
  EXPECT_THAT(Measure({1, 1.085, 1, 1.085, 1, 1}), ElementsAre(0, 1, 0, 1));
}

TEST_F(TrialTurns, NearIsMeantOfTheFastestAlone) {
  MeasureAll({1, 1.4, 1.9, 5, 5, 5});
  EXPECT_THAT(Measure({1, 1.4, 1, 1}), ElementsAre(0, 1));
}

// Four, three and two of them.
TEST_F(TrialTurns, FewerTakePartInEveryTurn) {
  MeasureAll({1, 1, 1, 1, 1, 1});
  EXPECT_THAT(Measure(std::vector<double>(20, 1)), ElementsAre(0, 1, 2, 3, 0, 1, 2, 0, 1));
  EXPECT_EQ(Chosen(), 0);
}

// Four trials of four steps of 3 s take 48 s; three more would take longer than a minute in all.
TEST_F(TrialTurns, WhatTakesLongHasFewer) {
  MeasureAll({3, 3, 3, 3, 3, 3});
  EXPECT_THAT(Measure(std::vector<double>(20, 3)), ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(IsUndecided(job()));
}

// Four times four steps of 3.75 s are a minute; the next turn would be more.
TEST_F(TrialTurns, AllOfThemTakeAMinuteAtMost) {
  MeasureAll({3.75, 3.75, 3.75, 3.75, 3.75, 3.75});
  EXPECT_THAT(Measure(std::vector<double>(20, 3.75)), ElementsAre(0, 1, 2, 3));
}

TEST_F(TrialTurns, ATurnOfMoreThanAMinuteIsLeftOut) {
  MeasureAll({3.76, 3.76, 3.76, 3.76, 3.76, 3.76});
  EXPECT_FALSE(IsUndecided(job()));
}

// Nine times four steps of 1.6 s, of each as often as it took part: 57.6 s.
TEST_F(TrialTurns, WhatTookPartInNoTurnTookNoneOfTheMinute) {
  MeasureAll({1.6, 1.6, 1.6, 1.6, 1.6, 1.6});
  EXPECT_THAT(Measure(std::vector<double>(20, 1.6)), ElementsAre(0, 1, 2, 3, 0, 1, 2, 0, 1));
}

TEST_F(TrialTurns, WhatTakesVeryLongHasNone) {
  MeasureAll({30, 30, 30, 30, 30, 30});
  EXPECT_FALSE(IsUndecided(job()));
}

// It counts as an attempt, and the figure stays.
TEST_F(TrialTurns, ADeathInATurnTakesTheTurn) {
  MeasureAll({1, 1.2, 5, 5, 5, 5});
  ASSERT_EQ(job().trials.current, 0);
  DieAndReturn(scenario_, id_, "w1", 1);
  ASSERT_EQ(job().state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(job().trials.current, 1);
  EXPECT_EQ(candidate(0).candidate.measured_step_seconds(), 1);
  EXPECT_EQ(candidate(0).failure, "");
  EXPECT_THAT(Measure({1.3, 1, 1.2, 1, 1.2, 1}), ElementsAre(1, 0, 1));
  EXPECT_EQ(Chosen(), 0);
}

// However many: what befell others is not its fault.
TEST_F(TrialTurns, DeathsDoNotStrikeOffWhatHasAFigure) {
  MeasureAll({1, 1.05, 5, 5, 5, 5});
  for (uint64_t life = 1; life <= 3; ++life) {
    ASSERT_EQ(job().trials.current, 0);
    DieAndReturn(scenario_, id_, "w1", life);
    EXPECT_THAT(Measure({1.05}), ElementsAre(1));
  }
  EXPECT_EQ(Chosen(), 0);
}

TEST_F(TrialTurns, AFailureOfARanksOwnInATurnStrikesOff) {
  MeasureAll({1, 1.2, 5, 5, 5, 5});
  scenario_.ReportAll(id_, kReady);
  scenario_.Do(Failed(job(), 0, "out of memory", 0));
  scenario_.ReleaseAll(id_, 0);
  // With the rest there is nothing to compare.
  EXPECT_EQ(Chosen(), 1);
  for (const v1::Candidate& told : job().trials.decision->candidates()) {
    if (SameLayout(told, candidate(0).candidate)) {
      EXPECT_EQ(told.measured_step_seconds(), 0);
    }
  }
}

// So many steps as the figure says, where there is one (next_trial_test.cc).
TEST_F(TrialTurns, ATrialTakesAboutASecond) {
  MeasureAll({0.02, 0.025, 5, 5, 5, 5});
  EXPECT_EQ(TrialOf(job()).steps(), 50);
}

TEST_F(TrialTurns, ReplayingTheLogDecidesTheSame) {
  MeasureAll({1, 1.1, 1.3, 1.2, 5, 1.4});
  Measure({1.2, 1, 1.1, 1, 0.9, 1, 1, 1});
  EXPECT_EQ(Describe(ReplayLog(scenario_.log())), Describe(scenario_.state()));
}

}  // namespace
}  // namespace sherd
