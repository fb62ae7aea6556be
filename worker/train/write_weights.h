#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// Writes what the job leaves, a checkpoint of the master weights, below `output_root`: every rank
// its own part at the same time. All ranks of the group call it together; all succeed or all fail
// with the same error, and then nothing stands under the final name but what stood there before.
// The final directory.
absl::StatusOr<std::string> WriteWeights(const v1::Assignment& assignment, const RankPlan& plan,
                                         const std::string& output_root, int64_t step, Ops& ops,
                                         RankMemory& memory, RankMesh& mesh);

// The rank whose part of WriteWeights failed with the error that all ranks return; -1 for another
// error.
int FailedRankOf(const absl::Status& error);

}  // namespace sherd
