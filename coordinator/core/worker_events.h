#pragma once

#include "coordinator/core/transition.h"

namespace sherd {

// A worker that says it is this rank speaks of an epoch that comes after all that `state` knows of
// its job, or of a job that it does not know: the log is older than the worker, or has forgotten
// the job.
bool IsBeyond(const State& state, const Seat& seat);

// What durable events about workers do.

void OnWorkerJoined(Transition& transition, const v1::WorkerJoined& event);
void OnWorkerLost(Transition& transition, const v1::WorkerLost& event);
void OnDrainRequested(Transition& transition, const v1::DrainRequested& event);
void OnHoldingsReported(Transition& transition, const v1::HoldingsReported& event);

}  // namespace sherd
