#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/protocol/model.h"

namespace sherd::protocol {
namespace {

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

// An assignment that was sent again changes nothing.
void TakeRank(State& next, int p) {
  const Coordinator& plan = next.coordinator;
  Process& process = next.processes[p];
  if (process.epoch == plan.epoch || process.fence >= plan.epoch) return;
  process.place = Place::kAssigned;
  process.epoch = plan.epoch;
  process.world = plan.world;
  for (int rank = 0; rank < plan.world; ++rank) {
    if (plan.ranks[rank] == p) process.rank = static_cast<uint8_t>(rank);
  }
  process.holder = plan.holders[process.rank];
}

void DropOlder(State& next, int p) {
  const int epoch = next.coordinator.epoch;
  for (Segment& segment : next.segments) {
    const bool needed =
        segment.made >= epoch || segment.slots[0].epoch >= epoch || segment.slots[1].epoch >= epoch;
    if (!needed) segment.holders &= static_cast<Mask>(~Bit(p));
  }
}

}  // namespace

void ProtocolModel::MoveWorker(const State& state, int p, Moves<State>& moves) const {
  ReadMail(state, p, moves);
  ReceiveCopy(state, p, moves);
  switch (state.processes[p].place) {
    case Place::kAssigned:
      return Restore(state, p, moves);
    case Place::kRestoring:
      return FinishRestoring(state, p, moves);
    case Place::kRestored:
      return HandOver(state, p, moves);
    case Place::kWaiting:
      return LeaveExchange(state, p, moves);
    case Place::kReturned:
      return BeginUpdate(state, p, moves);
    case Place::kWriting:
      return FinishUpdate(state, p, moves);
    case Place::kIdle:
    case Place::kWritten:
    case Place::kFinished:
    case Place::kFailed:
      return;
  }
}

void ProtocolModel::ReadMail(const State& state, int p, Moves<State>& moves) const {
  const Mail mail = state.processes[p].mail;
  // What an answer says must reach the log, or it is asked for again.
  if (mail == Mail::kNone || (mail == Mail::kAbort && !state.coordinator.up)) return;
  State next = state;
  next.processes[p].mail = Mail::kNone;
  const int epoch = state.coordinator.epoch;
  if (mail == Mail::kAssignment) TakeRank(next, p);
  if (mail == Mail::kAbort) Answer(next, p);
  if (mail == Mail::kRetain) DropOlder(next, p);
  const auto text = [&] {
    return mail == Mail::kAssignment ? absl::StrCat("P", p, " is told its rank of epoch ", epoch)
           : mail == Mail::kAbort    ? absl::StrCat("P", p, " leaves epoch ", epoch, ", answers")
                                     : absl::StrCat("P", p, " drops what is older than ", epoch);
  };
  Add(state, next, false, text, moves);
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

}  // namespace sherd::protocol
