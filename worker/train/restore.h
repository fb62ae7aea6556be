#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/holding_store.h"
#include "worker/train/rank_memory.h"

namespace sherd {

// Whether the assignment's restore plan names a version, and not a checkpoint.
bool RestoresVersion(const v1::Assignment& assignment);

// What this process holds, and under which addresses others know it.
struct OwnHoldings {
  const HoldingStore& store;
  std::vector<std::string> addresses;
};

// Fills the state that the rank owns (master copies and moments, not the stored parameters) with
// the version that `assignment.restore()` names, cut for any world: from this process if it holds
// it, else from those that the plan names, within the domain out of their memory and else over TCP.
// Copies, and changes nothing of that version. The reports of the last steps come along into
// `segment`; what else belongs to the version is returned. `watch` goes along on several threads.
// Errors: kUnavailable when somebody who holds a part is gone, or holds it damaged (it is no longer
// held then, so that another choice is made); kResourceExhausted when this process has no
// descriptor left to reach them by; kInvalidArgument when the parts do not make up what the rank
// owns; kAborted, within the time of one piece (CopyWatch) of abort.Abort.
absl::StatusOr<VersionFigures> RestoreVersion(const v1::Assignment& assignment,
                                              const RankPlan& plan, const OwnHoldings& own,
                                              const FormationAbort& abort, const CopyWatch& watch,
                                              RankMemory& memory, HoldingSegment& segment);

}  // namespace sherd
