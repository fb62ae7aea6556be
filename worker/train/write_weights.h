#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/checkpoint/file_system.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

// Writes what the job leaves, a checkpoint of the master weights, to FinalDirectory(root): every
// rank its own part at the same time. All ranks of the group call it together; all succeed or all
// fail with the same error (worker/train/vote.h), and then nothing stands there but what stood
// there before: what was begun is removed with `real_files`, also when `files` are cancelled.
absl::Status WriteWeights(FileSystem& files, FileSystem& real_files,
                          const v1::Assignment& assignment, const RankPlan& plan,
                          const std::string& root, int64_t step, Ops& ops, Device& device,
                          RankMemory& memory, RankMesh& mesh);

}  // namespace sherd
