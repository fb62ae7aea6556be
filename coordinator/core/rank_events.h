#pragma once

#include "coordinator/core/transition.h"

namespace sherd {

// What durable events about a job's epoch do. What is of an older epoch, of another process than
// the rank's, or of a job that has ended changes nothing, but that a worker whose seat ends is
// free.

void OnRankChanged(Transition& transition, const v1::RankChanged& event);
void OnFormationExpired(Transition& transition, const v1::FormationExpired& event);
void OnEpochProgressed(Transition& transition, const v1::EpochProgressed& event);
void OnCheckpointSaved(Transition& transition, const v1::CheckpointSaved& event);
void OnPatienceExpired(Transition& transition, const v1::PatienceExpired& event);
void OnHangDetected(Transition& transition, const v1::HangDetected& event);

}  // namespace sherd
