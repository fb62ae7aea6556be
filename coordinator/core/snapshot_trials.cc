#include "coordinator/core/snapshot_trials.h"

namespace sherd {
namespace {

v1::StoredCandidate Write(const TriedCandidate& tried) {
  const auto& [candidate, attempts, failure] = tried;
  v1::StoredCandidate stored;
  *stored.mutable_candidate() = candidate;
  stored.set_attempts(attempts);
  stored.set_failure(failure);
  return stored;
}

}  // namespace

v1::StoredTrials WriteTrials(const Trials& trials) {
  const auto& [phase, asked, asked_micro_batch, number, last_epoch, world, probe, probe_attempts,
               candidates, current, reports, decision, layouts] = trials;
  v1::StoredTrials stored;
  stored.set_phase(static_cast<int32_t>(phase));
  *stored.mutable_asked() = asked;
  stored.set_asked_micro_batch(asked_micro_batch);
  stored.set_number(number);
  stored.set_last_epoch(last_epoch.value());
  stored.set_world(world);
  if (probe) *stored.mutable_probe() = *probe;
  stored.set_probe_attempts(probe_attempts);
  for (const TriedCandidate& tried : candidates) *stored.add_candidates() = Write(tried);
  stored.set_current(current);
  for (const auto& [rank, report] : reports) {
    v1::StoredTrialReport& stored_report = *stored.add_reports();
    stored_report.set_rank(rank);
    *stored_report.mutable_report() = report;
  }
  if (decision) *stored.mutable_decision() = *decision;
  for (const auto& [epoch, parallel] : layouts) {
    v1::StoredEpochLayout& layout = *stored.add_layouts();
    layout.set_epoch(epoch);
    *layout.mutable_parallel() = parallel;
  }
  return stored;
}

Trials ReadTrials(const v1::StoredTrials& stored) {
  Trials trials;
  trials.phase = static_cast<Trials::Phase>(stored.phase());
  trials.asked = stored.asked();
  trials.asked_micro_batch = stored.asked_micro_batch();
  trials.number = stored.number();
  trials.last_epoch = Epoch(stored.last_epoch());
  trials.world = stored.world();
  if (stored.has_probe()) trials.probe = stored.probe();
  trials.probe_attempts = stored.probe_attempts();
  for (const v1::StoredCandidate& tried : stored.candidates()) {
    trials.candidates.push_back({tried.candidate(), tried.attempts(), tried.failure()});
  }
  trials.current = stored.current();
  for (const v1::StoredTrialReport& report : stored.reports()) {
    trials.reports[report.rank()] = report.report();
  }
  if (stored.has_decision()) trials.decision = stored.decision();
  for (const v1::StoredEpochLayout& layout : stored.layouts()) {
    trials.layouts[layout.epoch()] = layout.parallel();
  }
  return trials;
}

}  // namespace sherd
