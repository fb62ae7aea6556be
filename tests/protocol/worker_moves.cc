#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/protocol/model.h"
#include "tests/protocol/storage.h"

namespace sherd::protocol {
namespace {

Slot SlotOf(const Process& process) {
  Slot slot{};
  slot.epoch = process.epoch;
  slot.step = process.step;
  slot.lineage = process.lineage;
  return slot;
}

void Enter(State& next, int p) {
  Process& process = next.processes[p];
  process.place = Place::kWaiting;
  next.entered[process.epoch][process.rank] = static_cast<uint8_t>(process.step + 1);
}

void AddReport(Coordinator& coordinator, const Report& report) {
  const auto key = [](const Report& r) {
    return std::make_tuple(r.processes == 0, r.epoch, r.world, r.step, r.owner);
  };
  auto& reports = coordinator.reports;
  const auto known = std::find_if(reports.begin(), reports.end(), [&](const Report& r) {
    return r.processes == 0 || key(r) == key(report);
  });
  SHERD_CHECK(known != reports.end());
  const Mask others = known->processes;
  *known = report;
  known->processes |= others;
  std::sort(reports.begin(), reports.end(),
            [&](const Report& a, const Report& b) { return key(a) < key(b); });
}

}  // namespace

void ProtocolModel::MoveWorker(const State& state, int p, Moves<State>& moves) const {
  ReadMail(state, p, moves);
  ReceiveCopy(state, p, moves);
  switch (state.processes[p].place) {
    case Place::kAssigned:
      return Restore(state, p, moves);
    case Place::kRestoring:
    case Place::kRestored:
      return FinishRestoring(state, p, moves);
    case Place::kWaiting:
    case Place::kReturned:
    case Place::kWriting:
      return Train(state, p, moves);
    case Place::kIdle:
    case Place::kWritten:
    case Place::kFinished:
    case Place::kFailed:
      return;
  }
}

void ProtocolModel::ReadMail(const State& state, int p, Moves<State>& moves) const {
  const Coordinator& coordinator = state.coordinator;
  const Mail mail = state.processes[p].mail;
  if (mail == Mail::kNone) return;
  State next = state;
  Process& process = next.processes[p];
  process.mail = Mail::kNone;
  const int epoch = coordinator.epoch;
  if (mail == Mail::kAssignment) {
    // One that was sent again changes nothing.
    if (process.epoch != epoch && process.fence < epoch) {
      process.place = Place::kAssigned;
      process.epoch = static_cast<uint8_t>(epoch);
      process.world = coordinator.world;
      for (int rank = 0; rank < coordinator.world; ++rank) {
        if (coordinator.ranks[rank] == p) process.rank = static_cast<uint8_t>(rank);
      }
      process.holder = coordinator.holders[process.rank];
    }
    return Add(
        state, next, false,
        [&] { return absl::StrCat("P", p, " is told that it is a rank of epoch ", epoch); }, moves);
  }
  if (mail == Mail::kAbort) {
    // What it says must reach the log, or it is asked again.
    if (!coordinator.up) return;
    Answer(next, p);
    return Add(
        state, next, false,
        [&] { return absl::StrCat("P", p, " leaves epoch ", epoch, " and answers"); }, moves);
  }
  for (Segment& segment : next.segments) {
    const bool needed =
        segment.made >= epoch || segment.slots[0].epoch >= epoch || segment.slots[1].epoch >= epoch;
    if (!needed) segment.holders &= static_cast<Mask>(~Bit(p));
  }
  Add(
      state, next, false,
      [&] { return absl::StrCat("P", p, " drops what is older than epoch ", epoch); }, moves);
}

void ProtocolModel::Answer(State& next, int p) const {
  Process& process = next.processes[p];
  Coordinator& coordinator = next.coordinator;
  const uint8_t fence = coordinator.epoch;
  process = Process{};
  process.alive = 1;
  process.fence = fence;
  coordinator.answered |= Bit(p);
  for (Segment& segment : next.segments) {
    if ((segment.holders & Bit(p)) == 0) continue;
    if (segment.copy) segment.coming = Slot{};
    if (segment.copy) segment.applying = segment.coming_slot = 0;
    if (policy_.fences_memory) segment.fence = fence;
    for (const Slot& slot : segment.slots) {
      if (slot.epoch == 0) continue;
      AddReport(coordinator, {static_cast<uint8_t>(slot.epoch), segment.world,
                              static_cast<uint8_t>(slot.step), segment.rank, Bit(p)});
    }
  }
}

void ProtocolModel::Restore(const State& state, int p, Moves<State>& moves) const {
  State next = state;
  Process& process = next.processes[p];
  const Coordinator& plan = state.coordinator;
  // The assignment's own epoch is the newest one for as long as its rank is not aborted or lost.
  if (plan.epoch != process.epoch) return;
  if (plan.from_step == 0) {
    process.made = process.epoch;
    process.place = Place::kRestored;
    AddSegment(next, p, process.epoch, process.rank, process.world, p);
    return Add(
        state, next, false, [&] { return absl::StrCat("P", p, " starts anew"); }, moves);
  }
  const bool same_parts = plan.from_world == process.world;
  Segment* own =
      same_parts ? OwnVersion(next, p, process.rank, process.world, plan.from_epoch, plan.from_step)
                 : nullptr;
  process.step = plan.from_step;
  if (own != nullptr) {
    const int chosen = SlotWith(*own, plan.from_epoch, plan.from_step);
    const int target =
        policy_.copies_to_restore ? policy_.restore_slot(chosen, plan.from_step) : chosen;
    process.made = own->made;
    process.lineage = own->slots[chosen].lineage;
    process.slot = static_cast<uint8_t>(target);
    process.place = Place::kRestoring;
    if (policy_.copies_to_restore) own->slots[target] = Slot{};
    return Add(
        state, next, false,
        [&] {
          return absl::StrCat("P", p, " begins to restore step ", process.step, " from slot ",
                              chosen, " to slot ", target, " of its own memory");
        },
        moves);
  }
  bool first = true;
  for (int part = 0; part < plan.from_world; ++part) {
    if (same_parts && part != process.rank) continue;
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
    if (!first && found->lineage != process.lineage) next.ghost.wrong = Wrong::kMixedValues;
    process.lineage = found->lineage;
    first = false;
  }
  process.made = process.epoch;
  process.slot = 0;
  process.place = Place::kRestoring;
  AddSegment(next, p, process.epoch, process.rank, process.world, p);
  Add(
      state, next, false,
      [&] { return absl::StrCat("P", p, " reads step ", process.step, " into new memory"); },
      moves);
}

// The version is written; now its holder is to have it.
void ProtocolModel::Store(State& next, int p) const {
  const Process process = next.processes[p];
  const int holder = next.processes[p].holder;
  if (holder == kProcesses) return Enter(next, p);
  if (!scenario_.remote) {
    // The holder has the memory since the epoch formed.
    if (process.place == Place::kWriting) Enter(next, p);
    return;
  }
  const Process& other = next.processes[holder];
  if (!other.alive || other.fence >= process.epoch) return;
  const Coordinator& plan = next.coordinator;
  const bool restored = process.place == Place::kRestored;
  if (restored && plan.epoch != process.epoch) return;
  // A copy follows its original: the version before is that of the step before, or the chosen one.
  const int epoch = restored ? plan.from_epoch : process.epoch;
  const int before = restored ? process.step : process.step - 1;
  Segment* copy = CopyAt(next, holder, p, process.rank, process.world, epoch, before);
  const bool fresh = copy == nullptr;
  if (fresh) copy = &AddSegment(next, p, process.epoch, process.rank, process.world, holder);
  const int known = fresh || before == 0 ? 1 : SlotWith(*copy, epoch, before);
  int target = restored ? policy_.restore_slot(known, process.step)
                        : policy_.update_slot(known, process.step);
  if (restored && !fresh && !policy_.copies_to_restore) target = known;
  copy->coming = SlotOf(process);
  copy->coming_slot = static_cast<uint8_t>(target);
}

void ProtocolModel::FinishRestoring(const State& state, int p, Moves<State>& moves) const {
  State next = state;
  Process& process = next.processes[p];
  if (process.place == Place::kRestoring) {
    if (StopAtFence(state, p, moves)) return;
    OwnSegment(next, p).slots[process.slot] = SlotOf(process);
    Ghost& ghost = next.ghost;
    // The only process that the first one could have read from may have ended since it answered.
    if (ghost.start == 0) ghost.start = process.lineage;
    const bool newest = process.epoch == state.coordinator.epoch;
    if (newest && process.lineage != ghost.start) ghost.wrong = Wrong::kMixedValues;
    process.place = Place::kRestored;
    if (state.processes[p].holder == kProcesses || scenario_.remote) Store(next, p);
    return Add(
        state, next, false,
        [&] {
          return absl::StrCat("P", p, " has restored step ", process.step, " as epoch ",
                              process.epoch, " in slot ", process.slot);
        },
        moves);
  }
  const int holder = state.processes[p].holder;
  if (holder == kProcesses) {
    Enter(next, p);
  } else if (!scenario_.remote) {
    const Process& other = state.processes[holder];
    if (!other.alive || other.fence >= process.epoch) return;
    OwnSegment(next, p).holders |= Bit(holder);
    Enter(next, p);
  } else if (process.step == 0) {
    const Process& other = state.processes[holder];
    if (!other.alive || other.fence >= process.epoch) return;
    AddSegment(next, p, process.epoch, process.rank, process.world, holder);
    Enter(next, p);
  } else {
    return;
  }
  Add(
      state, next, false,
      [&] { return absl::StrCat("P", p, "'s holder has its memory; P", p, " is ready"); }, moves);
}

// Whether somebody has taken the memory out of `p`'s hands: then its epoch is over.
bool ProtocolModel::StopAtFence(const State& state, int p, Moves<State>& moves) const {
  if (OwnSegment(state, p).fence < state.processes[p].epoch) return false;
  State next = state;
  next.processes[p].place = Place::kFailed;
  Add(
      state, next, false, [&] { return absl::StrCat("P", p, " finds its memory fenced"); }, moves);
  return true;
}

void ProtocolModel::Train(const State& state, int p, Moves<State>& moves) const {
  State next = state;
  Process& process = next.processes[p];
  if (process.place == Place::kWaiting) {
    for (int rank = 0; rank < process.world; ++rank) {
      if (state.entered[process.epoch][rank] <= process.step) return;
    }
    Commit(next, p);
    process.place = process.step == scenario_.steps ? Place::kFinished : Place::kReturned;
    return Add(
        state, next, false,
        [&] {
          return absl::StrCat("P", p, " comes back from the exchange that commits step ",
                              process.step, " of epoch ", process.epoch);
        },
        moves);
  }
  if (StopAtFence(state, p, moves)) return;
  Segment& segment = OwnSegment(next, p);
  if (process.place == Place::kReturned) {
    const int newest = process.step == 0 ? 1 : SlotWith(segment, process.epoch, process.step);
    // A fault has overwritten what it works on.
    if (newest < 0) return;
    const int target = policy_.update_slot(newest, process.step + 1);
    process.slot = static_cast<uint8_t>(target);
    process.place = Place::kWriting;
    segment.slots[target] = Slot{};
    return Add(
        state, next, false,
        [&] { return absl::StrCat("P", p, " begins to overwrite slot ", target); }, moves);
  }
  ++process.step;
  process.lineage = Extended(process.lineage, process.step, process.epoch);
  segment.slots[process.slot] = SlotOf(process);
  Store(next, p);
  if (process.place == Place::kWriting) process.place = Place::kWritten;
  if (!policy_.final_exchange && process.step == scenario_.steps) {
    Commit(next, p);
    process.place = Place::kFinished;
  }
  Add(
      state, next, false,
      [&] {
        return absl::StrCat("P", p, " has stored step ", process.step, " of epoch ", process.epoch,
                            " in slot ", process.slot);
      },
      moves);
}

// A holder of another domain writes what it is sent, and then says so.
void ProtocolModel::ReceiveCopy(const State& state, int p, Moves<State>& moves) const {
  for (size_t i = 0; i < state.segments.size(); ++i) {
    const Segment& segment = state.segments[i];
    if (segment.holders != Bit(p) || segment.coming.epoch == 0) continue;
    State next = state;
    Segment& copy = next.segments[i];
    const int writer = copy.writer;
    const int step = copy.coming.step;
    if (!copy.applying) {
      copy.applying = 1;
      copy.slots[copy.coming_slot] = Slot{};
      Add(
          state, next, false,
          [&] {
            return absl::StrCat("P", p, " begins to write P", writer, "'s step ", step, " to slot ",
                                segment.coming_slot);
          },
          moves);
      continue;
    }
    copy.slots[copy.coming_slot] = copy.coming;
    const Process& owner = state.processes[writer];
    const bool waits = owner.place == Place::kRestored || owner.place == Place::kWritten;
    const bool same = owner.epoch == copy.coming.epoch && owner.step == step;
    if (owner.alive && waits && same) Enter(next, writer);
    copy.coming = Slot{};
    copy.applying = 0;
    copy.coming_slot = 0;
    Add(
        state, next, false,
        [&] { return absl::StrCat("P", p, " has stored P", writer, "'s step ", step); }, moves);
  }
}

void ProtocolModel::Commit(State& next, int p) const {
  const Process& process = next.processes[p];
  Ghost& ghost = next.ghost;
  const bool past = process.epoch < next.coordinator.epoch;
  // More were lost at once than the promise covers: what those who were given up go on with is
  // void.
  if (past && ghost.excused) return;
  const bool heard = !past && next.coordinator.phase != Phase::kRecovering &&
                     (next.coordinator.gone & Bit(p)) == 0;
  if (scenario_.told_only && !heard) return;
  const int both = std::min<int>(process.step, ghost.committed);
  if (Prefix(process.lineage, both) != Prefix(ghost.lineage, both)) {
    ghost.wrong = Wrong::kTwoValuesOfOneStep;
  }
  if (past && process.step > next.coordinator.from_step) ghost.wrong = Wrong::kCommitOfThePast;
  if (process.step <= ghost.committed) return;
  ghost.committed = process.step;
  ghost.lineage = process.lineage;
}

}  // namespace sherd::protocol
