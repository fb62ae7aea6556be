#pragma once

#include "coordinator/core/transition.h"

namespace sherd {

// After any change of workers or jobs: places every job that finds its workers, those that recover
// before those that are queued with the same priority, in queue order; has running jobs grow on
// workers that nobody else waits for, and move away from workers that leave; and dismisses those
// that nothing depends on any more.
void Schedule(Transition& transition);

// The same after nothing but the arrival of `job`, which costs less while nobody is idle.
void ScheduleSubmitted(Transition& transition, JobRecord& job);

// Puts a job into the queue, by priority.
void Enqueue(Transition& transition, JobRecord& job);

}  // namespace sherd
