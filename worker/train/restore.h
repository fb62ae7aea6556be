#pragma once

#include <string>

#include "absl/status/status.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/holdings/holding_store.h"
#include "worker/train/rank_memory.h"

namespace sherd {

// Whether the assignment's restore plan names a version, and not a checkpoint.
bool RestoresVersion(const v1::Assignment& assignment);

// Fills the state that the rank owns (master copies and moments, not the stored parameters) with
// the version that `assignment.restore()` names, cut for any world: from this process, and from
// those that the plan names. Copies, and changes nothing of that version. The reports of the last
// steps come along into `segment`.
// Errors: kUnavailable when somebody who holds a part is gone, or holds it damaged (it is no longer
// held then, so that another choice is made); kInvalidArgument when the parts do not make up what
// the rank owns; kAborted.
absl::Status RestoreVersion(const v1::Assignment& assignment, const RankPlan& plan,
                            const HoldingStore& store, const std::string& own_address,
                            const FormationAbort& abort, RankMemory& memory,
                            HoldingSegment& segment);

}  // namespace sherd
