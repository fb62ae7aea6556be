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
  while (IsUndecided(scenario.job(id))) {
    const bool probes = scenario.job(id).trials.phase == Trials::Phase::kProbe;
    const double seconds = !probes && tried < steps.size() ? steps[tried] : 1;
    tried += probes ? 0 : 1;
    scenario.MeasureAll(id, seconds);
    if (const auto decision = DecisionIn(scenario.Feed())) return *decision;
    if (tried > 20) break;
  }
  ADD_FAILURE() << "it is never decided";
  return {};
}

inline v1::Assignment AssignmentOf(const Scenario& scenario, const JobId& id, int rank) {
  AssignmentBuilder builder;
  return builder.Build(scenario.state(), scenario.job(id), rank, {});
}

}  // namespace sherd
