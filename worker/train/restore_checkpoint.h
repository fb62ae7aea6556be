#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "plan/ledger.h"
#include "sherd/v1/layout.pb.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/manifest.h"
#include "worker/holdings/copy_watch.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/trainer.h"

namespace sherd {

struct RestoredCheckpoint {
  CheckpointInfo info;
  // Of rank 0: it is the newest of its lineage below the job's root, and what follows belongs to
  // that.
  bool newest = false;
};

// Where the job's checkpoints are.
struct CheckpointSource {
  FileSystem& files;
  // checkpoint.dir, resolved; and what checkpoint.resume is relative to.
  std::string root;
  std::string output_root;
  int64_t corpus_tokens = 0;
  // Goes along with what is read.
  CopyWatch watch = nullptr;
};

// The job has trained in an epoch before this one.
bool IsLaterEpoch(const v1::Assignment& assignment);

// Fills the state that the rank owns (master copies and moments, not the stored parameters) from a
// checkpoint: in an epoch after the first from the newest of the job's own, be it the one that the
// assignment's restore plan names, or one that is not known of; else from that which
// checkpoint.resume names. Nothing when there is none to go on from. All ranks call it together and
// take the same one. A damaged one is told of and skipped for the one before it, where any but one
// may be meant. Errors, the same on all ranks (worker/train/vote.h): those of ResolveResume and
// CheckResumable, of which each says what is wrong with which file; kDataLoss when nothing sound is
// left.
absl::StatusOr<std::optional<RestoredCheckpoint>> RestoreCheckpoint(
    const v1::Assignment& assignment, const RankPlan& plan, const CheckpointSource& source,
    RankMemory& memory, RankMesh& mesh, TrainObserver& observer);

}  // namespace sherd
