#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/transition.h"

namespace sherd {

// What a job's next epoch is made of.

// Where training goes on, out of what those live workers said that `counts` admits: a version, else
// the newest checkpoint, else the start; the checkpoint also where it is newer than the version.
RestorePoint ChooseRestorePoint(const State& state, const JobRecord& job,
                                bool (*counts)(const WorkerState&));

// The domains (MemoryDomainOf) whose workers come to some process that holds it, of every part of
// the version to restore; nothing when those of all do.
std::optional<std::set<std::string>> ReadersOf(const State& state, const RestorePoint& restore);

// Starts the next epoch on `workers`, by rank. `save_and_stop`: only to save its state.
void FormEpoch(Transition& transition, JobRecord& job, const std::vector<WorkerId>& workers,
               RestorePoint restore, bool save_and_stop);

// A rank that is ready says which step the epoch goes on after, which all ranks agreed on; 0: as
// was planned. Only now is it certain what is trained again, and the feed is told. Does nothing
// when it is certain already.
void SettleStart(Transition& transition, JobRecord& job, int64_t step);

// Every rank has restored: the job runs, and what is older is not needed any more.
void RunEpoch(Transition& transition, JobRecord& job);

// Tells the feed of the current epoch, once: what it goes on after and what the end of the one
// before it cost.
void AnnounceEpoch(Transition& transition, JobRecord& job);

}  // namespace sherd
