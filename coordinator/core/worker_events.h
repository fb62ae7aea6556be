#pragma once

#include "coordinator/core/transition.h"

namespace sherd {

// What durable events about workers do.

void OnWorkerJoined(Transition& transition, const v1::WorkerJoined& event);
void OnWorkerLost(Transition& transition, const v1::WorkerLost& event);
void OnDrainRequested(Transition& transition, const v1::DrainRequested& event);
void OnHoldingsReported(Transition& transition, const v1::HoldingsReported& event);

}  // namespace sherd
