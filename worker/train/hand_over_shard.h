#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sherd/v1/layout.pb.h"
#include "worker/comm/data_link.h"
#include "worker/holdings/copy_watch.h"
#include "worker/holdings/holding_store.h"
#include "worker/holdings/remote_copy.h"

namespace sherd {

// Has the processes that the assignment names hold the rank's shard: those within its domain map
// the segment; for each other the copy is returned that stores versions there. `watch` goes along
// with what is copied; `segment` and `abort` outlive the copies. kUnavailable, with the address
// (LostHolderOf), when one does not hold it; kResourceExhausted, without, when this process has no
// descriptor left for it; kAborted after abort.Abort; errors of RemoteCopy.
absl::StatusOr<std::vector<std::unique_ptr<RemoteCopy>>> HandOverShard(
    const v1::Assignment& assignment, const HoldingSegment& segment, FormationAbort& abort,
    const CopyWatch& watch);

}  // namespace sherd
