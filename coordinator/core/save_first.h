#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/next_epoch.h"
#include "coordinator/core/placement.h"
#include "coordinator/core/state.h"
#include "coordinator/core/transition.h"

namespace sherd {

// What becomes of the state of a job that has to wait: too few workers are there for it, or others
// are to get those that it has. What its processes hold would get rarer with every one that goes,
// so it is saved as a checkpoint first, on any world of whole tensor and shard groups that is left.

// So many epochs in a row may fail to save it; then it waits with what is held.
inline constexpr int kMostFailedSaves = 8;

// On how many ranks the job may go on that its last epoch has left.
int64_t MostRanks(const JobRecord& job);

// The next epoch of the job, to be trained, or to be saved.
WorkerPools::NextWorld WorldToTrain(const State& state, const JobRecord& job,
                                    const RestorePoint& restore);
WorkerPools::NextWorld WorldToSave(const State& state, const JobRecord& job,
                                   const RestorePoint& restore);

// Workers that leave take a part of what is to be restored with them, and it is saved nowhere.
bool LeavesWithUnsaved(const State& state, const JobRecord& job, const RestorePoint& restore);

// The job, which waits, is about to save its state, or is when it has waited for silent workers:
// the workers that it would save on are kept.
bool IsAboutToSave(const JobRecord& job);

// Forms the epochs that save for jobs that would have to wait if all were placed in `order`: at
// once where workers leave or others are to get them; else after the failure detection's time, in
// which a process that its supervisor starts anew is back; after a failure later and later.
void SaveWaitingJobs(Transition& transition, const std::vector<JobId>& order);

// A job that waits with state that is saved nowhere and is not about to be: the feed is told in how
// many processes the rarest part of it is, whenever that changes.
void WarnOfUnsaved(Transition& transition, JobRecord& job, const RestorePoint& restore);

// The job would lose steps that were committed, and workers that fell silent may come back with
// them: they are waited for, not for ever. True while they are.
bool AwaitsSilent(Transition& transition, JobRecord& job, const RestorePoint& restore);

}  // namespace sherd
