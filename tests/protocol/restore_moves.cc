#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/protocol/model.h"
#include "tests/protocol/storage.h"

namespace sherd::protocol {

void ProtocolModel::Restore(const State& state, int p, Moves<State>& moves) const {
  const Process& process = state.processes[p];
  const Coordinator& plan = state.coordinator;
  // Somebody who was given up reads nothing any more of what he was to restore.
  if (plan.epoch != process.epoch) return;
  State next = state;
  if (plan.from_step == 0) {
    next.processes[p].made = process.epoch;
    next.processes[p].place = Place::kRestored;
    AddSegment(next, p, process.epoch, process.rank, process.world, p);
    return Add(
        state, next, false, [&] { return absl::StrCat("P", p, " starts anew"); }, moves);
  }
  next.processes[p].step = plan.from_step;
  Segment* own = nullptr;
  if (!scenario_.anew && plan.from_world == process.world) {
    own = OwnVersion(next, p, process.rank, process.world, plan.from_epoch, plan.from_step);
  }
  if (own != nullptr) {
    RestoreInPlace(state, p, next, *own, moves);
  } else {
    ReadParts(state, p, moves);
  }
}

void ProtocolModel::RestoreInPlace(const State& state, int p, State& next, Segment& own,
                                   Moves<State>& moves) const {
  const Coordinator& plan = state.coordinator;
  Process& process = next.processes[p];
  const int chosen = SlotWith(own, plan.from_epoch, plan.from_step);
  int target = chosen;
  process.lineage = own.slots[chosen].lineage;
  if (policy_.copies_to_restore) {
    target = policy_.restore_slot(chosen, plan.from_step);
    own.slots[target] = Slot{};
  }
  process.made = own.made;
  process.slot = static_cast<uint8_t>(target);
  process.place = Place::kRestoring;
  const auto text = [&] {
    return absl::StrCat("P", p, " begins to restore step ", process.step, " from slot ", chosen,
                        " to slot ", target, " of its own memory");
  };
  Add(state, next, false, text, moves);
}

// Out of the memory of others. A world of another size cuts all parts anew.
void ProtocolModel::ReadParts(const State& state, int p, Moves<State>& moves) const {
  const Coordinator& plan = state.coordinator;
  State next = state;
  Process& process = next.processes[p];
  process.step = plan.from_step;
  std::optional<Lineage> read;
  for (int part = 0; part < plan.from_world; ++part) {
    if (plan.from_world == process.world && part != process.rank) continue;
    std::optional<Slot> found;
    for (int source = 0; source < scenario_.processes && !found.has_value(); ++source) {
      if ((plan.sources[part] & Bit(source)) == 0 || !state.processes[source].alive) continue;
      found = HeldBy(state, source, part, plan.from_world, plan.from_epoch, plan.from_step);
    }
    if (!found.has_value()) {
      process.place = Place::kFailed;
      return Add(
          state, next, false,
          [&] { return absl::StrCat("P", p, " finds nobody who has part ", part); }, moves);
    }
    const Lineage lineage = found->lineage;
    if (read.value_or(lineage) != lineage) next.ghost.wrong = Wrong::kMixedValues;
    read = lineage;
  }
  process.lineage = *read;
  process.made = process.epoch;
  process.slot = 0;
  process.place = Place::kRestoring;
  AddSegment(next, p, process.epoch, process.rank, process.world, p);
  const auto text = [&] {
    return absl::StrCat("P", p, " reads step ", process.step, " into new memory");
  };
  Add(state, next, false, text, moves);
}

void ProtocolModel::FinishRestoring(const State& state, int p, Moves<State>& moves) const {
  if (StopAtFence(state, p, moves)) return;
  State next = state;
  Process& process = next.processes[p];
  OwnSegment(next, p).slots[process.slot] = SlotOf(process);
  Ghost& ghost = next.ghost;
  if (process.epoch == state.coordinator.epoch) {
    // The only process that the version could be read from may have ended since it answered.
    if (ghost.start == 0) ghost.start = process.lineage;
    if (process.lineage != ghost.start) ghost.wrong = Wrong::kMixedValues;
  }
  process.place = Place::kRestored;
  if (scenario_.remote) SendCopy(next, p);
  const auto text = [&] {
    return absl::StrCat("P", p, " has restored step ", process.step, " as epoch ", process.epoch,
                        " in slot ", process.slot);
  };
  Add(state, next, false, text, moves);
}

// What a holder has of a rank from now on: the memory, or a place for copies. Copies of what was
// restored are messages.
void ProtocolModel::HandOver(const State& state, int p, Moves<State>& moves) const {
  State next = state;
  const Process& process = state.processes[p];
  const int holder = process.holder;
  if (holder != kProcesses) {
    if (!Accepts(state, holder, process.epoch)) return;
    if (scenario_.remote && process.step > 0) return;
    if (scenario_.remote) {
      AddSegment(next, p, process.epoch, process.rank, process.world, holder);
    } else {
      OwnSegment(next, p).holders |= Bit(holder);
    }
  }
  EnterExchange(next, p);
  const auto text = [&] {
    return holder == kProcesses ? absl::StrCat("P", p, " is ready; nobody holds its copies")
                                : absl::StrCat("P", p, " is ready, with P", holder, " as holder");
  };
  Add(state, next, false, text, moves);
}

}  // namespace sherd::protocol
