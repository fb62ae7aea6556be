#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "tests/protocol/model.h"

namespace sherd::protocol {
namespace {

// Whether a process has all of its epoch: its shard, and a holder who has it, too.
bool HasRestored(const Process& process, int epoch) {
  return process.alive && process.epoch == epoch && process.place >= Place::kWaiting &&
         process.place <= Place::kFinished;
}

}  // namespace

Mask ProtocolModel::Present(const Coordinator& coordinator) const {
  return static_cast<Mask>(~coordinator.gone & ((1 << scenario_.processes) - 1));
}

void ProtocolModel::MoveCoordinator(const State& state, Moves<State>& moves) const {
  const Coordinator& coordinator = state.coordinator;
  if (!coordinator.up) {
    State next = state;
    next.coordinator.up = 1;
    SendAll(next);
    return Add(
        state, next, false, [] { return "The coordinator comes back"; }, moves);
  }
  for (int p = 0; p < scenario_.processes; ++p) {
    if (state.processes[p].alive || (coordinator.gone & Bit(p)) != 0) continue;
    State next = state;
    GiveUp(next, p);
    Add(
        state, next, false,
        [&] { return absl::StrCat("The coordinator knows that P", p, " ended"); }, moves);
  }
  if (coordinator.phase == Phase::kRecovering) return Plan(state, moves);
  bool finished = true;
  for (int rank = 0; rank < coordinator.world; ++rank) {
    const Process& process = state.processes[coordinator.ranks[rank]];
    finished &= process.epoch == coordinator.epoch && process.place == Place::kFinished;
    HearOfRank(state, rank, moves);
  }
  if (!finished) return;
  State next = state;
  next.coordinator.phase = Phase::kDone;
  Add(
      state, next, false, [] { return "The job has succeeded"; }, moves);
}

void ProtocolModel::HearOfRank(const State& state, int rank, Moves<State>& moves) const {
  const Coordinator& coordinator = state.coordinator;
  const int p = coordinator.ranks[rank];
  const Process& process = state.processes[p];
  State next = state;
  Coordinator& log = next.coordinator;
  if (process.alive && process.epoch == coordinator.epoch && process.place == Place::kFailed) {
    EndEpoch(next);
    return Add(
        state, next, false,
        [&] { return absl::StrCat("P", p, " failed: epoch ", coordinator.epoch, " ends"); }, moves);
  }
  const bool heard = (coordinator.ready & Bit(rank)) != 0;
  if (coordinator.phase != Phase::kForming || heard) return;
  if (!HasRestored(process, coordinator.epoch)) return;
  log.ready |= Bit(rank);
  const bool all = std::popcount(log.ready) == log.world;
  if (all) {
    log.phase = Phase::kRunning;
    log.restored = log.epoch;
    log.ready = 0;
    log.involved = NamedBy(log);
    log.sources.fill(0);
    for (int q = 0; q < scenario_.processes; ++q) {
      if ((Present(log) & Bit(q)) != 0) next.processes[q].mail = Mail::kRetain;
    }
  }
  const auto text = [&] {
    return absl::StrCat("The coordinator logs that rank ", rank, " is ready",
                        all ? ": the job is running" : "");
  };
  Add(state, next, false, text, moves);
}

Mask ProtocolModel::NamedBy(const Coordinator& coordinator) const {
  Mask named = 0;
  for (int rank = 0; rank < coordinator.world; ++rank) {
    named |= Bit(coordinator.ranks[rank]);
    if (coordinator.holders[rank] != kProcesses) named |= Bit(coordinator.holders[rank]);
  }
  return named;
}

// The messages that follow from the log; one that was sent before is sent again.
void ProtocolModel::SendAll(State& next) const {
  const Coordinator& log = next.coordinator;
  for (int p = 0; p < scenario_.processes; ++p) {
    if ((log.gone & Bit(p)) != 0) continue;
    const bool asked = (log.involved & ~log.answered & Bit(p)) != 0;
    if (log.phase == Phase::kRecovering && asked) next.processes[p].mail = Mail::kAbort;
  }
  for (int rank = 0; rank < log.world && log.phase == Phase::kForming; ++rank) {
    if ((log.gone & Bit(log.ranks[rank])) != 0) continue;
    next.processes[log.ranks[rank]].mail = Mail::kAssignment;
  }
}

void ProtocolModel::EndEpoch(State& next) const {
  Coordinator& log = next.coordinator;
  log.phase = Phase::kRecovering;
  log.answered = 0;
  log.ready = 0;
  log.reports.fill(Report{});
  log.sources.fill(0);
  log.involved &= static_cast<Mask>(~log.gone);
  SendAll(next);
}

void ProtocolModel::GiveUp(State& next, int p) const {
  Coordinator& log = next.coordinator;
  const auto others = static_cast<Mask>(~Bit(p));
  log.gone |= Bit(p);
  log.answered &= others;
  log.involved &= others;
  next.processes[p].mail = Mail::kNone;
  for (Report& report : log.reports) {
    report.processes &= others;
    if (report.processes == 0) report = Report{};
  }
  std::stable_partition(log.reports.begin(), log.reports.end(),
                        [](const Report& report) { return report.processes != 0; });
  if (log.phase != Phase::kForming && log.phase != Phase::kRunning) return;
  bool named = (NamedBy(log) & Bit(p)) != 0;
  if (!policy_.holders_end_epochs) {
    named = std::find(log.ranks.begin(), log.ranks.begin() + log.world, p) !=
            log.ranks.begin() + log.world;
  }
  if (named) EndEpoch(next);
}

}  // namespace sherd::protocol
