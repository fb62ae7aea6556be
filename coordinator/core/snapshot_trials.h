#pragma once

#include "coordinator/core/state.h"
#include "sherd/v1/coordinator_state.pb.h"

namespace sherd {

// Of a job of strategy auto, for snapshot.cc: all of `trials` as a message, and back.
v1::StoredTrials WriteTrials(const Trials& trials);
Trials ReadTrials(const v1::StoredTrials& stored);

}  // namespace sherd
