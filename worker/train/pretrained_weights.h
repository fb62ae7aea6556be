#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "plan/ledger.h"
#include "sherd/v1/job.pb.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"

namespace sherd {

struct PretrainedSource {
  // What model.from lies below.
  const std::string& data_root;
  const v1::ModelSpec& model;
  int threads = 1;
  // Whether to give up.
  std::function<bool()> stop;
};

// Fills the master copies that the rank owns from the folder `source.model.from()`: each rank reads
// what its shard needs and no more. Padding is zero. All ranks call it together. Errors, the same
// on all of them (worker/train/vote.h): those of PretrainedFolder, and kFailedPrecondition when the
// folder is of another shape than the job.
absl::Status LoadPretrained(const PretrainedSource& source, const RankPlan& plan,
                            RankMemory& memory, RankMesh& mesh);

}  // namespace sherd
