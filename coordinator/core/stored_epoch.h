#pragma once

#include "coordinator/core/state.h"
#include "sherd/v1/coordinator_state.pb.h"

// What snapshot.h stores of a job's epoch. As there, whatever writes binds all members by name.
namespace sherd::stored_epoch {

v1::StoredRank Write(const RankState& rank);
RankState Read(const v1::StoredRank& stored);

v1::StoredCopyHolder Write(const CopyHolder& holder);
CopyHolder Read(const v1::StoredCopyHolder& stored);

v1::StoredRestorePoint Write(const RestorePoint& point);
RestorePoint Read(const v1::StoredRestorePoint& stored);

v1::StoredEpochTimes Write(const EpochTimes& times);
EpochTimes Read(const v1::StoredEpochTimes& stored);

v1::StoredPatience Write(const Patience& patience);
Patience Read(const v1::StoredPatience& stored);

}  // namespace sherd::stored_epoch
