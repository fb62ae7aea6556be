#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/protocol/model.h"
#include "tests/protocol/storage.h"

namespace sherd::protocol {

// Whether somebody has taken the memory out of `p`'s hands: then its epoch is over.
bool ProtocolModel::StopAtFence(const State& state, int p, Moves<State>& moves) const {
  if (OwnSegment(state, p).fence < state.processes[p].epoch) return false;
  State next = state;
  next.processes[p].place = Place::kFailed;
  Add(
      state, next, false, [&] { return absl::StrCat("P", p, " finds its memory fenced"); }, moves);
  return true;
}

void ProtocolModel::LeaveExchange(const State& state, int p, Moves<State>& moves) const {
  State next = state;
  Process& process = next.processes[p];
  for (int rank = 0; rank < process.world; ++rank) {
    if (state.entered[process.epoch][rank] <= process.step) return;
  }
  Commit(next, p);
  process.place = process.step == scenario_.steps ? Place::kFinished : Place::kReturned;
  const auto text = [&] {
    return absl::StrCat("P", p, " comes back from the exchange that commits step ", process.step,
                        " of epoch ", process.epoch);
  };
  Add(state, next, false, text, moves);
}

void ProtocolModel::BeginUpdate(const State& state, int p, Moves<State>& moves) const {
  if (StopAtFence(state, p, moves)) return;
  State next = state;
  Process& process = next.processes[p];
  Segment& segment = OwnSegment(next, p);
  const int newest = process.step == 0 ? 1 : SlotWith(segment, process.epoch, process.step);
  // A fault has overwritten what it works on.
  if (newest < 0) return;
  const int target = policy_.update_slot(newest, process.step + 1);
  process.slot = static_cast<uint8_t>(target);
  process.place = Place::kWriting;
  segment.slots[target] = Slot{};
  const auto text = [&] { return absl::StrCat("P", p, " begins to overwrite slot ", target); };
  Add(state, next, false, text, moves);
}

void ProtocolModel::FinishUpdate(const State& state, int p, Moves<State>& moves) const {
  if (StopAtFence(state, p, moves)) return;
  State next = state;
  Process& process = next.processes[p];
  ++process.step;
  process.lineage = Extended(process.lineage, process.step, process.epoch);
  OwnSegment(next, p).slots[process.slot] = SlotOf(process);
  process.place = Place::kWritten;
  // Whoever holds the memory has the step in it.
  const bool sends = scenario_.remote && process.holder != kProcesses;
  if (sends) SendCopy(next, p);
  if (!sends) EnterExchange(next, p);
  if (!policy_.final_exchange && process.step == scenario_.steps) {
    Commit(next, p);
    process.place = Place::kFinished;
  }
  const auto text = [&] {
    return absl::StrCat("P", p, " has stored step ", process.step, " of epoch ", process.epoch,
                        " in slot ", process.slot);
  };
  Add(state, next, false, text, moves);
}

void ProtocolModel::Commit(State& next, int p) const {
  const Process& process = next.processes[p];
  Ghost& ghost = next.ghost;
  const bool past = process.epoch < next.coordinator.epoch;
  // After more losses at once than promised, what those who were given up go on with is void.
  if (past && ghost.excused) return;
  const bool heard = !past && (next.coordinator.gone & Bit(p)) == 0;
  if (scenario_.heard_only && !heard) return;
  const int both = std::min<int>(process.step, ghost.committed);
  if (Prefix(process.lineage, both) != Prefix(ghost.lineage, both)) {
    ghost.wrong = Wrong::kTwoValuesOfOneStep;
  }
  if (past && process.step > next.coordinator.from_step) ghost.wrong = Wrong::kCommitOfThePast;
  if (process.step <= ghost.committed) return;
  ghost.committed = process.step;
  ghost.lineage = process.lineage;
}

// Sends what was written to its holder, after the version that the holder has before it.
void ProtocolModel::SendCopy(State& next, int p) const {
  const Process process = next.processes[p];
  const int holder = process.holder;
  if (holder == kProcesses || !Accepts(next, holder, process.epoch)) return;
  const Coordinator& plan = next.coordinator;
  const bool restored = process.place == Place::kRestored;
  if (restored && plan.epoch != process.epoch) return;
  const int epoch = restored ? plan.from_epoch : process.epoch;
  const int before = restored ? process.step : process.step - 1;
  Segment* copy = nullptr;
  if (!restored || !scenario_.anew) {
    copy = CopyAt(next, holder, p, process.rank, process.world, epoch, before);
  }
  const bool fresh = copy == nullptr;
  if (fresh) copy = &AddSegment(next, p, process.epoch, process.rank, process.world, holder);
  const int known = fresh || before == 0 ? 1 : SlotWith(*copy, epoch, before);
  int target = restored ? policy_.restore_slot(known, process.step)
                        : policy_.update_slot(known, process.step);
  if (restored && !fresh && !policy_.copies_to_restore) target = known;
  copy->coming = SlotOf(process);
  copy->coming_slot = static_cast<uint8_t>(target);
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
    if (owner.alive && waits && same) EnterExchange(next, writer);
    copy.coming = Slot{};
    copy.applying = 0;
    copy.coming_slot = 0;
    Add(
        state, next, false,
        [&] { return absl::StrCat("P", p, " has stored P", writer, "'s step ", step); }, moves);
  }
}

}  // namespace sherd::protocol
