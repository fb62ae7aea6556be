#include "tests/protocol/model.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/support/jobs.h"

namespace sherd::protocol {

ProtocolModel::ProtocolModel(const Scenario& scenario, const Policy& policy)
    : scenario_(scenario),
      policy_(policy),
      spec_(testing::MakeJob("zero3", v1::DATA_TYPE_FP32, 1)) {
  SHERD_CHECK(scenario.processes <= kProcesses && scenario.steps <= kSteps);
}

State ProtocolModel::Initial() const {
  State state{};
  for (int p = 0; p < scenario_.processes; ++p) state.processes[p].alive = 1;
  state.ghost.deaths = static_cast<uint8_t>(scenario_.deaths);
  state.ghost.freezes = static_cast<uint8_t>(scenario_.freezes);
  state.ghost.ends = static_cast<uint8_t>(scenario_.ends);
  state.ghost.crashes = static_cast<uint8_t>(scenario_.crashes);
  Coordinator& log = state.coordinator;
  log.up = 1;
  log.epoch = 1;
  log.phase = Phase::kForming;
  log.world = static_cast<uint8_t>(scenario_.first_world);
  for (int rank = 0; rank < scenario_.first_world; ++rank) {
    const int next = (rank + 1) % scenario_.processes;
    log.ranks[rank] = static_cast<uint8_t>(rank);
    log.holders[rank] = static_cast<uint8_t>(
        scenario_.first_world == 1 ? next : (rank + 1) % scenario_.first_world);
  }
  log.involved = NamedBy(log);
  SendAll(state);
  return state;
}

void ProtocolModel::Next(const State& state, Moves<State>& moves) const {
  for (int p = 0; p < scenario_.processes; ++p) {
    if (state.processes[p].alive) MoveWorker(state, p, moves);
  }
  MoveCoordinator(state, moves);
  MoveEnvironment(state, moves);
}

void ProtocolModel::Add(const State& state, State& next, bool fault,
                        absl::FunctionRef<std::string()> text, Moves<State>& moves) const {
  Normalize(next);
  moves.Add(next, fault, text);
}

std::string ProtocolModel::Violation(const State& state) const {
  switch (state.ghost.wrong) {
    case Wrong::kNothing:
      return "";
    case Wrong::kLostCommit:
      return "a committed step is lost within the promise";
    case Wrong::kMixedValues:
      return "ranks of one epoch go on from different states";
    case Wrong::kCommitOfThePast:
      return "an epoch commits a step that the next one does not go on from";
    case Wrong::kTwoValuesOfOneStep:
      return "a step is committed with two values";
    case Wrong::kEpochWithoutCause:
      return "more epochs end than there were faults";
  }
  return "";
}

bool ProtocolModel::Ended(const State& state) const {
  int alive = 0;
  for (const Process& process : state.processes) alive += process.alive;
  // Too few are left: the job waits for more, and says so.
  return state.coordinator.phase == Phase::kDone || alive < scenario_.min_world;
}

std::string ProtocolModel::Show(const State& state) const {
  std::string text = absl::StrCat("   committed: step ", state.ghost.committed, "\n");
  for (const Segment& segment : state.segments) {
    if (segment.holders == 0) continue;
    absl::StrAppend(&text, "   memory of P", segment.writer, " as rank ", segment.rank, " of ",
                    segment.world, segment.copy ? ", a copy" : "", ", held by");
    for (int p = 0; p < scenario_.processes; ++p) {
      if (segment.holders & Bit(p)) absl::StrAppend(&text, " P", p);
    }
    for (int i = 0; i < 2; ++i) {
      const Slot& slot = segment.slots[i];
      absl::StrAppend(&text, i == 0 ? ": " : ", ");
      if (slot.epoch == 0) absl::StrAppend(&text, "invalid");
      if (slot.epoch != 0) absl::StrAppend(&text, "epoch ", slot.epoch, " step ", slot.step);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace sherd::protocol
