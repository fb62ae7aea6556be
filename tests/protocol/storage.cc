#include "tests/protocol/storage.h"

#include "common/check.h"

namespace sherd::protocol {

Slot SlotOf(const Process& process) {
  Slot slot{};
  slot.epoch = process.epoch;
  slot.step = process.step;
  slot.lineage = process.lineage;
  return slot;
}

void EnterExchange(State& state, int p) {
  Process& process = state.processes[p];
  process.place = Place::kWaiting;
  state.entered[process.epoch][process.rank] = static_cast<uint8_t>(process.step + 1);
}

bool Accepts(const State& state, int p, int epoch) {
  return state.processes[p].alive && state.processes[p].fence < epoch;
}

int SlotWith(const Segment& segment, int epoch, int step) {
  for (int i = 0; i < 2; ++i) {
    const Slot& slot = segment.slots[i];
    if (slot.epoch != 0 && (epoch == 0 || slot.epoch == epoch) && slot.step == step) return i;
  }
  return -1;
}

Segment& OwnSegment(State& state, int p) {
  for (Segment& segment : state.segments) {
    const bool own = !segment.copy && segment.writer == p && (segment.holders & Bit(p)) != 0;
    if (own && segment.made == state.processes[p].made) return segment;
  }
  SHERD_CHECK(false);
  return state.segments[0];
}

const Segment& OwnSegment(const State& state, int p) {
  return OwnSegment(const_cast<State&>(state), p);
}

Segment* OwnVersion(State& state, int p, int rank, int world, int epoch, int step) {
  for (Segment& segment : state.segments) {
    const bool own = !segment.copy && segment.writer == p && (segment.holders & Bit(p)) != 0;
    if (!own || segment.rank != rank || segment.world != world) continue;
    if (SlotWith(segment, epoch, step) >= 0) return &segment;
  }
  return nullptr;
}

Segment* CopyAt(State& state, int holder, int writer, int rank, int world, int epoch, int step) {
  for (Segment& segment : state.segments) {
    const bool copy = segment.copy && segment.writer == writer && segment.holders == Bit(holder);
    if (!copy || segment.rank != rank || segment.world != world) continue;
    if (step == 0 ? segment.made == epoch : SlotWith(segment, epoch, step) >= 0) return &segment;
  }
  return nullptr;
}

Segment& AddSegment(State& state, int writer, int made, int rank, int world, int holder) {
  for (Segment& segment : state.segments) {
    if (segment.holders != 0) continue;
    segment = Segment{};
    segment.holders = Bit(holder);
    segment.writer = static_cast<uint8_t>(writer);
    segment.made = static_cast<uint8_t>(made);
    segment.rank = static_cast<uint8_t>(rank);
    segment.world = static_cast<uint8_t>(world);
    segment.copy = holder != writer;
    return segment;
  }
  SHERD_CHECK(false);
  return state.segments[0];
}

std::optional<Slot> HeldBy(const State& state, int p, int part, int world, int epoch, int step) {
  for (const Segment& segment : state.segments) {
    if ((segment.holders & Bit(p)) == 0 || segment.rank != part || segment.world != world) continue;
    const int slot = SlotWith(segment, epoch, step);
    if (slot >= 0) return segment.slots[slot];
  }
  return std::nullopt;
}

}  // namespace sherd::protocol
