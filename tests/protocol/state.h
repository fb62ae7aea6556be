#pragma once

#include <array>
#include <cstdint>

namespace sherd::protocol {

// What the model of docs/protocol-model.md knows at one instant. Plain bytes, all zero at first,
// so that states are compared and hashed as such.

inline constexpr int kProcesses = 4;
inline constexpr int kSegments = 12;
inline constexpr int kEpochs = 7;  // 1 … 7; 0 is none
inline constexpr int kSteps = 3;   // 1 … 3; 0 is the state that the seed gives
inline constexpr int kReports = 24;

using Mask = uint8_t;  // of processes
inline constexpr Mask Bit(int process) { return static_cast<Mask>(1 << process); }

// Where each step of a state was computed: the epoch of step i in the three bits from 3 (i - 1) on.
// States of one step whose lineages differ have different bits.
using Lineage = uint16_t;
inline constexpr Lineage Extended(Lineage lineage, int step, int epoch) {
  return static_cast<Lineage>(lineage | epoch << 3 * (step - 1));
}
inline constexpr Lineage Prefix(Lineage lineage, int step) {
  return static_cast<Lineage>(lineage & ((1 << 3 * step) - 1));
}

// A header, and the bytes under it. Epoch 0: marked invalid.
struct Slot {
  uint16_t epoch : 3;
  uint16_t step : 3;
  uint16_t lineage : 9;
  uint16_t unused : 1;
};

// Memory with two slots. It lives as long as one of its holders does. `writer` wrote the shard of
// `rank` of `world` in there; `made` is the epoch that it was made in.
struct Segment {
  Mask holders;
  uint8_t writer;
  uint8_t made;
  uint8_t rank;
  uint8_t world;
  // A copy that its one holder has from the writer by messages.
  uint8_t copy;
  // A copy's next version: sent, and being written to `coming_slot`.
  uint8_t applying;
  uint8_t coming_slot;
  // Its writer marks no slot any more, neither invalid nor whole, in epochs up to this one.
  uint8_t fence;
  uint8_t unused;
  Slot coming;
  std::array<Slot, 2> slots;
};
static_assert(sizeof(Segment) % sizeof(uint64_t) == 0);  // sorted by words

enum class Place : uint8_t {
  kIdle,
  kAssigned,   // restores
  kRestoring,  // marked a slot invalid and copies the chosen version there
  kRestored,   // its holders have nothing yet
  kWaiting,    // is in the exchange of step + 1
  kReturned,   // from there: step is committed
  kWriting,    // marked a slot invalid and writes step + 1 there
  kWritten,    // its holder's copy is under way
  kFinished,
  kFailed,  // what it was to restore from is not there
};

enum class Mail : uint8_t { kNone, kAssignment, kAbort, kRetain };

struct Process {
  uint8_t alive;
  Place place;
  uint8_t epoch;
  uint8_t rank;
  uint8_t world;
  uint8_t step;
  // Its own segment, by epoch, and the slot that it writes.
  uint8_t made;
  uint8_t slot;
  // It writes and accepts nothing of epochs up to this one.
  uint8_t fence;
  // The newest message to it. A newer one makes an older one void.
  Mail mail;
  // Who holds its copies, by its assignment; kProcesses: nobody.
  uint8_t holder;
  uint8_t unused;
  Lineage lineage;
};

enum class Phase : uint8_t { kForming, kRunning, kRecovering, kDone };

// That a process holds a version of a rank's shard, as it answered.
struct Report {
  uint8_t epoch;
  uint8_t world;
  uint8_t step;
  uint8_t owner;
  Mask processes;
};

// All of it is in the log, but `up`.
struct Coordinator {
  uint8_t up;
  Phase phase;
  uint8_t epoch;
  uint8_t restored;
  Mask gone;      // lost, as far as it knows
  Mask involved;  // may hold something that counts
  Mask answered;
  uint8_t ready;  // by rank
  // Of the epoch: who is which rank, who holds its copies (kProcesses: nobody).
  uint8_t world;
  std::array<uint8_t, kProcesses> ranks;
  std::array<uint8_t, kProcesses> holders;
  // The version that it restores, step 0: the seed's; and who has which part of that.
  uint8_t from_epoch;
  uint8_t from_world;
  uint8_t from_step;
  std::array<Mask, kProcesses> sources;
  // From which step each epoch after `restored` went on.
  std::array<uint8_t, kEpochs + 1> starts;
  std::array<Report, kReports> reports;
};

enum class Wrong : uint8_t {
  kNothing,
  kLostCommit,
  kMixedValues,
  kCommitOfThePast,
  kTwoValuesOfOneStep,
  kEpochWithoutCause,
};

// What nobody in the model can see.
struct Ghost {
  Wrong wrong;
  uint8_t committed;
  // Processes lost since the job last ran with nobody missing, and whether more were lost at once
  // than the promise covers.
  uint8_t lost;
  uint8_t excused;
  // Of faults that may still happen.
  uint8_t deaths;
  uint8_t freezes;
  uint8_t ends;
  uint8_t crashes;
  // Epochs that had to end.
  uint8_t causes;
  uint8_t unused;
  Lineage lineage;  // of the committed step
  Lineage start;    // of what the newest epoch restores
};

struct State {
  std::array<Process, kProcesses> processes;
  std::array<Segment, kSegments> segments;
  Coordinator coordinator;
  Ghost ghost;
  // By epoch and rank: the last exchange that the rank entered.
  std::array<std::array<uint8_t, kProcesses>, kEpochs + 1> entered;
};

}  // namespace sherd::protocol
