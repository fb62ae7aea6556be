#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "tests/protocol/model.h"
#include "tests/protocol/storage.h"

namespace sherd::protocol {

void ProtocolModel::MoveEnvironment(const State& state, Moves<State>& moves) const {
  const Coordinator& coordinator = state.coordinator;
  for (int p = 0; p < scenario_.processes; ++p) {
    const Process& process = state.processes[p];
    if (!process.alive || (scenario_.mortal & Bit(p)) == 0) continue;
    const bool gone = (coordinator.gone & Bit(p)) != 0;
    if (state.ghost.deaths > 0) {
      State next = state;
      next.processes[p] = Process{};
      for (Segment& segment : next.segments) segment.holders &= static_cast<Mask>(~Bit(p));
      --next.ghost.deaths;
      next.ghost.lost += !gone;
      next.ghost.causes += !gone;
      Add(
          state, next, true, [&] { return absl::StrCat("P", p, " ENDS"); }, moves);
    }
    if (state.ghost.freezes > 0 && coordinator.up && !gone) {
      State next = state;
      --next.ghost.freezes;
      ++next.ghost.lost;
      ++next.ghost.causes;
      GiveUp(next, p);
      Add(
          state, next, true, [&] { return absl::StrCat("P", p, " IS GIVEN UP, but goes on"); },
          moves);
    }
  }
  if (!coordinator.up) return;
  const bool trains = coordinator.phase == Phase::kForming || coordinator.phase == Phase::kRunning;
  if (state.ghost.ends > 0 && trains) {
    State next = state;
    --next.ghost.ends;
    ++next.ghost.causes;
    EndEpoch(next);
    Add(
        state, next, true,
        [&] { return absl::StrCat("EPOCH ", coordinator.epoch, " ENDS without a loss"); }, moves);
  }
  if (state.ghost.crashes > 0) {
    State next = state;
    --next.ghost.crashes;
    next.coordinator.up = 0;
    for (Process& process : next.processes) process.mail = Mail::kNone;
    Add(
        state, next, true, [] { return "THE COORDINATOR ENDS, and with it what it had sent"; },
        moves);
  }
  for (int p = 0; p < scenario_.processes; ++p) {
    if (!state.processes[p].alive || (coordinator.gone & Bit(p)) == 0) continue;
    // It leaves its epoch, and keeps or drops what it holds.
    for (const bool keeps : {false, true}) {
      State next = state;
      next.processes[p] = Process{};
      next.processes[p].alive = 1;
      next.processes[p].fence = coordinator.epoch;
      next.coordinator.gone &= static_cast<Mask>(~Bit(p));
      for (Segment& segment : next.segments) {
        if ((segment.holders & Bit(p)) == 0) continue;
        if (segment.copy) segment.coming = Slot{};
        if (segment.copy) segment.applying = segment.coming_slot = 0;
        if (!keeps) segment.holders &= static_cast<Mask>(~Bit(p));
      }
      Add(
          state, next, false,
          [&] {
            return absl::StrCat("P", p, ", which was given up, comes back with ",
                                keeps ? "what it holds" : "nothing");
          },
          moves);
    }
  }
}

void ProtocolModel::Normalize(State& state) const {
  Coordinator& coordinator = state.coordinator;
  Mask alive = 0;
  std::array<bool, kEpochs + 1> works{};
  for (int p = 0; p < scenario_.processes; ++p) {
    const Process& process = state.processes[p];
    if (!process.alive) continue;
    alive |= Bit(p);
    works[process.epoch] = true;
  }
  for (int epoch = 0; epoch <= kEpochs; ++epoch) {
    if (!works[epoch]) state.entered[epoch].fill(0);
    if (epoch <= coordinator.restored) coordinator.starts[epoch] = 0;
  }
  for (Segment& segment : state.segments) {
    const bool empty =
        segment.slots[0].epoch == 0 && segment.slots[1].epoch == 0 && segment.coming.epoch == 0;
    const Process& writer = state.processes[segment.writer];
    const bool used = writer.alive && writer.made != 0 &&
                      (segment.copy ? writer.epoch : writer.made) == segment.made;
    if (!writer.alive || writer.epoch == 0 || writer.epoch > segment.fence) segment.fence = 0;
    if (segment.holders == 0 || (empty && !used)) segment = Segment{};
  }
  using Words = std::array<uint64_t, sizeof(Segment) / sizeof(uint64_t)>;
  std::sort(state.segments.begin(), state.segments.end(), [](const Segment& a, const Segment& b) {
    return std::bit_cast<Words>(a) > std::bit_cast<Words>(b);
  });
  const Mask all = static_cast<Mask>((1 << scenario_.processes) - 1);
  const bool settled =
      coordinator.phase == Phase::kRunning && (~alive & all & ~coordinator.gone) == 0;
  if (!settled) return;
  // Whoever is missing is known to be, and the job runs without: the promise holds anew, unless
  // there is nobody who could hold copies.
  const auto end = coordinator.holders.begin() + coordinator.world;
  const bool covered = std::find(coordinator.holders.begin(), end, kProcesses) == end;
  state.ghost.lost = static_cast<uint8_t>(covered ? 0 : scenario_.promised);
}

}  // namespace sherd::protocol
