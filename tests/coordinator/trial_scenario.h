#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/assignment.h"
#include "gtest/gtest.h"
#include "tests/coordinator/scenario.h"

namespace sherd {

// Jobs of strategy auto on workers of one host.

inline JobId SubmitAuto(Scenario& scenario, int workers, int64_t least = 1) {
  scenario.JoinWorkers(workers);
  return scenario.Submit({.min_workers = least, .is_auto = true});
}

inline std::optional<v1::StrategyDecision> DecisionIn(const std::vector<v1::JobEvent>& feed) {
  for (const v1::JobEvent& event : feed) {
    if (event.has_decision()) return event.decision();
  }
  return std::nullopt;
}

// The candidate that the job's epoch tries.
inline const v1::Candidate& Tried(const JobRecord& job) {
  return job.trials.candidates[static_cast<size_t>(job.trials.current)].candidate;
}

// Measures until it is decided; candidate number n (from 0) takes steps[n], the rest 1 s.
inline v1::StrategyDecision MeasureToTheEnd(Scenario& scenario, const JobId& id,
                                            const std::vector<double>& steps = {}) {
  size_t tried = 0;
  for (int measured = 0; measured < 25 && IsUndecided(scenario.job(id)); ++measured) {
    const bool probes = scenario.job(id).trials.phase == Trials::Phase::kProbe;
    const double seconds = !probes && tried < steps.size() ? steps[tried] : 1;
    tried += probes ? 0 : 1;
    scenario.MeasureAll(id, seconds);
    if (const auto decision = DecisionIn(scenario.Feed())) return *decision;
  }
  ADD_FAILURE() << "it is never decided";
  return {};
}

// Measures until it is decided; `seconds` says how long a step of a candidate takes.
template <typename Seconds>
void MeasureBy(Scenario& scenario, const JobId& id, Seconds seconds) {
  scenario.MeasureAll(id, 0);
  for (int trial = 0; trial < 20 && IsUndecided(scenario.job(id)); ++trial) {
    scenario.MeasureAll(id, seconds(Tried(scenario.job(id))));
  }
  ASSERT_FALSE(IsUndecided(scenario.job(id)));
}

// A worker of a measurement that is under way is killed, and is back before the others have left.
inline void DieAndReturn(Scenario& scenario, const JobId& id, const std::string& worker,
                         uint64_t life) {
  scenario.ReportAll(id, v1::RankChanged::MILESTONE_READY);
  scenario.Do(Lost(worker, life, "killed by signal 9 (SIGKILL)"));
  scenario.Do(Joined(worker, life + 1));
  scenario.ReleaseAll(id, 0);
}

inline v1::Assignment AssignmentOf(const Scenario& scenario, const JobId& id, int rank) {
  AssignmentBuilder builder;
  return builder.Build(scenario.state(), scenario.job(id), rank, {});
}

}  // namespace sherd
