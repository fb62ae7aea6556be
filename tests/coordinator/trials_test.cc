// How a job of strategy auto is laid out: measurements, the decision, and what disturbs them.

#include "coordinator/core/trials.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/candidates.h"
#include "tests/coordinator/trial_scenario.h"

namespace sherd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

using Phase = Trials::Phase;

TEST(Trials, ItsFirstEpochProbesTheMachines) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).trials.phase, Phase::kProbe);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("probe of 4 workers"));
  const v1::Assignment assignment = AssignmentOf(scenario, id, 1);
  ASSERT_TRUE(assignment.has_trial());
  EXPECT_EQ(assignment.trial().number(), 1);
  EXPECT_EQ(assignment.trial().steps(), 0);
  EXPECT_THAT(assignment.trial().group_sizes(), testing::ElementsAre(2, 4));
  EXPECT_EQ(assignment.peers_size(), 4);
  EXPECT_THAT(assignment.holders(), IsEmpty());
  scenario.ReportAll(id, kReady);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  for (const v1::JobEvent& event : scenario.Feed()) EXPECT_FALSE(event.has_epoch());
}

// It times groups of all kinds, whatever its own epoch is made of.
TEST(Trials, RanksOfAProbeReachAllOthers) {
  Scenario scenario;
  scenario.JoinWorkers(4);
  const JobId id = scenario.Submit({.tensor = 2, .is_auto = true});
  EXPECT_EQ(AssignmentOf(scenario, id, 1).peers_size(), 4);
}

TEST(Trials, TheBestCandidatesOfTheProbesFiguresAreTried) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  scenario.MeasureAll(id, 0);
  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.trials.phase, Phase::kTrial);
  EXPECT_EQ(job.state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(job.epoch, Epoch(2));
  EXPECT_EQ(job.trials.current, 0);
  ASSERT_TRUE(job.trials.probe);
  EXPECT_EQ(job.trials.probe->matmul_flops_per_second(), 50e9);
  const v1::Assignment assignment = AssignmentOf(scenario, id, 0);
  EXPECT_EQ(assignment.trial().number(), 2);
  EXPECT_GE(assignment.trial().steps(), 4);
  EXPECT_LE(assignment.trial().steps(), 100);
  EXPECT_EQ(assignment.spec().parallel().DebugString(), Tried(job).parallel().DebugString());
  EXPECT_FALSE(assignment.has_restore());
}

TEST(Trials, WhatIsPredictedRestsOnTheProbesFigures) {
  const auto predicted = [](double flops) {
    Scenario scenario;
    const JobId id = SubmitAuto(scenario, 1);
    scenario.ReportAll(id, kReady);
    v1::DurableEvent measured = Measured(scenario.job(id), 0, 0);
    measured.mutable_rank_changed()->mutable_trial()->set_matmul_flops_per_second(flops);
    scenario.Do(measured);
    return scenario.job(id).trials.candidates.front().candidate.predicted_step_seconds();
  };
  EXPECT_GT(predicted(1e6), 2 * predicted(1e9));
}

TEST(Trials, TheFastestThatWasMeasuredIsTakenAndTrained) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 4);
  const v1::StrategyDecision decision = MeasureToTheEnd(scenario, id, {0.5, 0.4, 0.2, 0.3});
  EXPECT_EQ(decision.world(), 4);
  EXPECT_EQ(decision.chosen().measured_step_seconds(), 0.2);
  EXPECT_THAT(decision.reason(), HasSubstr("200 ms a step"));
  int64_t measured = 0;
  for (const v1::Candidate& candidate : decision.candidates()) {
    measured += candidate.measured_step_seconds() > 0;
  }
  EXPECT_EQ(measured, 6);
  EXPECT_EQ(decision.probe().matmul_flops_per_second(), 50e9);

  const JobRecord& job = scenario.job(id);
  EXPECT_EQ(job.state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(job.spec.parallel().DebugString(), decision.chosen().parallel().DebugString());
  EXPECT_EQ(job.spec.train().micro_batch(), decision.chosen().micro_batch());
  EXPECT_FALSE(AssignmentOf(scenario, id, 0).has_trial());
  EXPECT_EQ(AssignmentOf(scenario, id, 0).first_epoch(), job.epoch.value());
  scenario.ReportAll(id, kReady);
  ASSERT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  const auto feed = scenario.Feed();
  const auto epoch = std::find_if(feed.begin(), feed.end(),
                                  [](const v1::JobEvent& event) { return event.has_epoch(); });
  ASSERT_NE(epoch, feed.end());
  EXPECT_EQ(epoch->epoch().reason(), "every rank is ready");
  scenario.ReportAll(id, kFinished);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_SUCCEEDED);
}

TEST(Trials, ReplayingTheLogDecidesTheSame) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 3);
  MeasureToTheEnd(scenario, id, {0.5, 0.4});
  EXPECT_EQ(Describe(ReplayLog(scenario.log())), Describe(scenario.state()));
}

TEST(Trials, NothingOfThemIsKept) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2);
  scenario.MeasureAll(id, 0);
  EXPECT_THAT(scenario.job(id).holders, IsEmpty());
  for (const RankState& rank : scenario.job(id).ranks) EXPECT_THAT(rank.holders, IsEmpty());
  // What a rank says of steps and holdings, after an abort, is of nothing.
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)", 7));
  v1::DurableEvent released = Released(scenario.job(id), 0, 7);
  scenario.Do(released);
  EXPECT_EQ(scenario.job(id).step, 0);
  EXPECT_EQ(scenario.job(id).restored, Epoch());
  EXPECT_EQ(scenario.job(id).restore.step, 0);
}

// The same candidate is tried again, and no training epoch was in vain.
TEST(Trials, ADeathBeginsTheMeasurementAgain) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 3, /*least=*/3);
  scenario.MeasureAll(id, 0);
  const std::string tried = NameOf(Tried(scenario.job(id)));
  const Epoch epoch = scenario.job(id).epoch;
  scenario.ReportAll(id, kReady);
  scenario.Do(Lost("w1", 1, "killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RECOVERING);
  scenario.ReleaseAll(id, 0);
  scenario.Do(Joined("w1", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).epoch, Epoch(epoch.value() + 1));
  EXPECT_EQ(NameOf(Tried(scenario.job(id))), tried);
  EXPECT_EQ(scenario.job(id).fruitless, 0);
  EXPECT_EQ(MeasureToTheEnd(scenario, id, {0.1}).chosen().measured_step_seconds(), 0.1);
}

// Others may be done before they hear of a death.
TEST(Trials, FiguresOfABrokenMeasurementDoNotCount) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  scenario.ReportAll(id, kReady);
  const JobRecord before = scenario.job(id);
  scenario.Do(Lost("w0", 1, "killed by signal 9 (SIGKILL)"));
  scenario.Do(Measured(before, 1, 0.1));
  scenario.Do(Joined("w0", 2));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_EQ(scenario.job(id).trials.current, 0);
  EXPECT_EQ(Tried(scenario.job(id)).measured_step_seconds(), 0);
}

TEST(Trials, ADeathDuringTheProbeBeginsItAgain) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  for (uint64_t life = 1; life <= 2; ++life) {
    DieAndReturn(scenario, id, "w0", life);
    EXPECT_EQ(scenario.job(id).trials.phase, Phase::kProbe);
    EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  }
  EXPECT_EQ(scenario.job(id).fruitless, 0);
  MeasureToTheEnd(scenario, id);
}

// After three attempts candidates are ranked by the profile of the device.
TEST(Trials, WithoutAProbeCandidatesAreTriedAllTheSame) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  for (uint64_t life = 1; life <= 3; ++life) DieAndReturn(scenario, id, "w0", life);
  EXPECT_EQ(scenario.job(id).trials.phase, Phase::kTrial);
  EXPECT_FALSE(scenario.job(id).trials.probe);
  EXPECT_FALSE(MeasureToTheEnd(scenario, id).has_probe());
}

TEST(Trials, ACandidateThatFailsTwiceIsStruckOff) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  const v1::Candidate first = Tried(scenario.job(id));
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_TRUE(SameLayout(Tried(scenario.job(id)), first));
    scenario.ReportAll(id, kReady);
    scenario.Do(Failed(scenario.job(id), 0, "out of memory", 0));
    scenario.ReleaseAll(id, 0);
  }
  EXPECT_FALSE(SameLayout(Tried(scenario.job(id)), first));
  // Whatever it would have taken.
  EXPECT_FALSE(SameLayout(MeasureToTheEnd(scenario, id).chosen(), first));
}

// What it is struck off for is of one line, and short.
TEST(Trials, ACandidateWithoutAFigureIsStruckOffAtTheThirdDeath) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  const v1::Candidate first = Tried(scenario.job(id));
  for (uint64_t life = 1; life <= 3; ++life) {
    EXPECT_TRUE(SameLayout(Tried(scenario.job(id)), first)) << life;
    scenario.ReportAll(id, kReady);
    scenario.Do(Lost("w0", life, absl::StrCat("its last words\n", std::string(2000, 'x'))));
    scenario.ReleaseAll(id, 0);
    scenario.Do(Joined("w0", life + 1));
  }
  EXPECT_FALSE(SameLayout(Tried(scenario.job(id)), first));
  const std::string& failure = scenario.job(id).trials.candidates.front().failure;
  EXPECT_THAT(failure, AllOf(HasSubstr("its last words"), Not(HasSubstr("\n"))));
  EXPECT_LE(failure.size(), 400u);
}

// Its ranks say that they are done, and have no figure.
TEST(Trials, ACandidateThatIsNeverMeasuredIsStruckOff) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  const v1::Candidate first = Tried(scenario.job(id));
  for (int attempt = 1; attempt <= 3; ++attempt) {
    EXPECT_TRUE(SameLayout(Tried(scenario.job(id)), first)) << attempt;
    scenario.MeasureAll(id, 0);
  }
  EXPECT_FALSE(SameLayout(Tried(scenario.job(id)), first));
  EXPECT_THAT(scenario.job(id).trials.candidates.front().failure, HasSubstr("no figures"));
}

TEST(Trials, AStepTakesAsLongAsItsSlowestRank) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 3);
  scenario.MeasureAll(id, 0);
  scenario.ReportAll(id, kReady);
  const JobRecord before = scenario.job(id);
  for (const int rank : {2, 0, 1}) scenario.Do(Measured(before, rank, rank == 1 ? 0.4 : 0.1));
  EXPECT_EQ(scenario.job(id).trials.candidates.front().candidate.measured_step_seconds(), 0.4);
}

TEST(Trials, AFailureThatWouldComeAgainStrikesOffAtOnceAndEndsNoJob) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  const v1::Candidate first = Tried(scenario.job(id));
  scenario.ReportAll(id, kReady);
  v1::DurableEvent failed = Failed(scenario.job(id), 1, "not in this build", 0);
  failed.mutable_rank_changed()->set_final(true);
  scenario.Do(failed);
  scenario.ReleaseAll(id, 0);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FORMING);
  EXPECT_FALSE(SameLayout(Tried(scenario.job(id)), first));
}

// What is told of it is why another attempt would fail, not what befell this one.
TEST(Trials, AFailureThatWouldComeAgainIsTheReasonThatIsTold) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  for (uint64_t life = 1; life <= 2; ++life) DieAndReturn(scenario, id, "w0", life);
  scenario.ReportAll(id, kReady);
  scenario.Do(Lost("w0", 3, "killed by signal 9 (SIGKILL)"));
  v1::DurableEvent failed = Failed(scenario.job(id), 1, "not in this build", 0);
  failed.mutable_rank_changed()->set_final(true);
  scenario.Do(failed);
  scenario.Do(Joined("w0", 4));
  scenario.ReleaseAll(id, 0);
  ASSERT_EQ(scenario.job(id).trials.current, 1);
  EXPECT_THAT(scenario.job(id).trials.candidates.front().failure, HasSubstr("not in this build"));
}

TEST(Trials, WhenNothingRunsTheJobFailsWithTheCauses) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2, /*least=*/2);
  scenario.MeasureAll(id, 0);
  int failures = 0;
  while (!IsTerminal(scenario.job(id).state) && failures < 50) {
    scenario.ReportAll(id, kReady);
    v1::DurableEvent failed = Failed(scenario.job(id), 0, "no such file", 0);
    failed.mutable_rank_changed()->set_final(true);
    scenario.Do(failed);
    scenario.ReleaseAll(id, 0);
    ++failures;
  }
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("no strategy could be run"));
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("no such file"));
  EXPECT_EQ(scenario.IdleWorkers(), 2);
}

// F20
TEST(Trials, WhatDoesNotFitIsNeverTried) {
  Scenario scenario;
  for (const char* worker : {"w0", "w1"}) {
    v1::DurableEvent joined = Joined(worker, 1);
    joined.mutable_worker_joined()->set_memory_bytes(1 << 20);
    scenario.Do(joined);
  }
  const JobId id = scenario.Submit({.min_workers = 2, .is_auto = true});
  scenario.MeasureAll(id, 0);
  const Trials& trials = scenario.job(id).trials;
  const auto fits = [](const TriedCandidate& tried) { return tried.candidate.fits(); };
  const auto fitting = std::count_if(trials.candidates.begin(), trials.candidates.end(), fits);
  ASSERT_GT(fitting, 0);
  ASSERT_LT(fitting, std::ssize(trials.candidates)) << "choose another limit";
  for (int trial = 0; trial < 20 && IsUndecided(scenario.job(id)); ++trial) {
    EXPECT_TRUE(Tried(scenario.job(id)).fits());
    EXPECT_LE(2 * Tried(scenario.job(id)).peak_bytes(), 1 << 20);
    scenario.MeasureAll(id, 1);
  }
  EXPECT_FALSE(IsUndecided(scenario.job(id)));
}

TEST(Trials, AJobOfWhichNothingFitsFails) {
  Scenario scenario;
  v1::DurableEvent joined = Joined("w0", 1);
  joined.mutable_worker_joined()->set_memory_bytes(4096);
  scenario.Do(joined);
  const JobId id = scenario.Submit({.is_auto = true});
  scenario.MeasureAll(id, 0);
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_FAILED);
  EXPECT_THAT(scenario.job(id).reason, HasSubstr("no strategy fits the memory of 1 worker"));
}

TEST(Trials, ACancelledJobStopsMeasuring) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2);
  scenario.MeasureAll(id, 0);
  scenario.ReportAll(id, kReady);
  scenario.Do(CancelRequest(id));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(scenario.Aborted(), SizeIs(2));
  scenario.ReportAll(id, kReleased);
  EXPECT_EQ(scenario.IdleWorkers(), 2);
}

// A worker that is to leave is asked for nothing more when the measurement is over.
TEST(Trials, AWorkerThatLeavesIsLetGoAfterTheMeasurement) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 3);
  scenario.ReportAll(id, kReady);
  scenario.Do(Drained("w2"));
  EXPECT_EQ(scenario.job(id).state, v1::JOB_STATE_RUNNING);
  const JobRecord before = scenario.job(id);
  for (int rank = 0; rank < 3; ++rank) scenario.Do(Measured(before, rank, 0));
  EXPECT_THAT(scenario.WorkersOf(id), testing::ElementsAre("w0", "w1"));
  EXPECT_THAT(scenario.ActionsOf<SendShutdown>(), SizeIs(1));
  // For two workers from the start.
  EXPECT_EQ(scenario.job(id).trials.world, 2);
  EXPECT_EQ(MeasureToTheEnd(scenario, id).world(), 2);
}

// All that is needed is in the snapshot: the job goes on where it was.
TEST(Trials, TheyGoOnInACoordinatorThatReturns) {
  Scenario scenario;
  const JobId id = SubmitAuto(scenario, 2);
  scenario.MeasureAll(id, 0);
  scenario.MeasureAll(id, 0.5);
  State returned = ReplayLog(scenario.log());
  const size_t known = scenario.log().size();
  MeasureToTheEnd(scenario, id, {0.4});
  for (size_t at = known; at < scenario.log().size(); ++at) Apply(scenario.log()[at], returned);
  EXPECT_EQ(Describe(returned), Describe(scenario.state()));
}

TEST(Trials, AJobWithOneCandidateIsNotTried) {
  Scenario scenario;
  scenario.JoinWorkers(1);
  const JobId id = scenario.Submit({.max_workers = 1, .is_auto = true});
  scenario.MeasureAll(id, 0);
  const auto decision = DecisionIn(scenario.Feed());
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->chosen().parallel().strategy(), v1::STRATEGY_DDP);
  EXPECT_EQ(decision->reason(), "the only one that fits");
}

}  // namespace
}  // namespace sherd
