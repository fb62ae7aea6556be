#pragma once

#include <optional>

#include "tests/protocol/state.h"

namespace sherd::protocol {

// The version that a process has just computed or restored.
Slot SlotOf(const Process& process);

// `p`'s copies are stored: it takes part in the exchange that commits its step.
void EnterExchange(State& state, int p);

// Whether a process takes over copies of `epoch`.
bool Accepts(const State& state, int p, int epoch);

// The slot of a version, -1 if the segment has it not. Epoch 0 stands for any.
int SlotWith(const Segment& segment, int epoch, int step);

// The segment of `p`'s own that it works in; it must have one.
Segment& OwnSegment(State& state, int p);
const Segment& OwnSegment(const State& state, int p);

// The segment in which `p` itself stored `step` of `epoch` as `rank` of `world`; null if there is
// none.
Segment* OwnVersion(State& state, int p, int rank, int world, int epoch, int step);

// The copy at `holder` of what `writer` stores: the one with this version of rank `rank` of
// `world`, or, of step 0, the one made in `epoch`. Null if there is none.
Segment* CopyAt(State& state, int holder, int writer, int rank, int world, int epoch, int step);

Segment& AddSegment(State& state, int writer, int made, int rank, int world, int holder);

// The slot of rank `part` of `world` in any segment that `p` holds.
std::optional<Slot> HeldBy(const State& state, int p, int part, int world, int epoch, int step);

}  // namespace sherd::protocol
