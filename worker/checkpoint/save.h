#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// How training state is saved beside training. `root` is the job's checkpoint.dir, on a file system
// that all ranks share; below it stand
//   step-00000100-epoch-3/   a checkpoint, whole and durable, or not there at all
//   latest                   names the one that was published last: a hint
//   final/                   the weights that the job leaves
//   tokens/                  what the job's text became, for its next start
//   metrics.jsonl, events.out.tfevents.sherd
//                            the figures of its steps
//   .….partial, .….removing  what is being put together, or taken apart
//
//   every rank:  WriteSave, on a thread of its own; then tells rank 0 that it is done, or why not
//   rank 0:      once all are done PublishSave, then Retain; when one failed DiscardSave
// Nothing here waits for another rank. Ranks of an older epoch that are still writing do no harm:
// every (job, epoch, step) has a staging directory of its own.
//
// Errors name the path: kResourceExhausted (no space left), kPermissionDenied, … .

inline constexpr char kTokensDirectory[] = "tokens";
inline constexpr char kMetricsFile[] = "metrics.jsonl";
inline constexpr char kEventsFile[] = "events.out.tfevents.sherd";

std::string StepDirectory(const std::string& root, int64_t step, int64_t epoch);
std::string FinalDirectory(const std::string& root);
std::string SaveStaging(const std::string& root, const CheckpointInfo& info);

// Checks before the job starts that nothing but what is named above stands in `root`:
// kFailedPrecondition names what else does. Weights of an earlier version may lie in `root` itself.
absl::Status CheckRoot(FileSystem& files, const std::string& root);

// Writes the rank's shard file, durable, and beside it what rank 0 must know of it. Makes the
// staging directory if no other rank has. `info.job_id` is a plain file name.
absl::Status WriteSave(FileSystem& files, const std::string& root, const CheckpointInfo& info,
                       int rank, int world, absl::Span<const TensorRange> ranges);

struct PublishedSave {
  std::string path;
  // Of all shard files.
  int64_t bytes = 0;
};
// Makes the checkpoint out of what all ranks have written: it has its name, durably, or what stood
// there before still stands (when it is cancelled, either). Then moves `latest`; that failing is no
// error.
absl::StatusOr<PublishedSave> PublishSave(FileSystem& files, const std::string& root,
                                          const CheckpointInfo& info, int world,
                                          absl::Span<const TensorDescription> tensors);

// Best effort.
void DiscardSave(FileSystem& files, const std::string& root, const CheckpointInfo& info);

// Removes what is beyond the `keep` newest sound checkpoints of the lineage; 0 keeps all. Those of
// other lineages, and directories whose manifest cannot be read, stay. Also what saves of the job's
// epochs before `info.epoch` have left half-written. The first error, having tried everything.
absl::Status Retain(FileSystem& files, const std::string& root, const CheckpointInfo& info,
                    int64_t keep);

// When a job starts: everything half-written or half-removed. No other job writes to `root`.
absl::Status RemoveAbandoned(FileSystem& files, const std::string& root);

}  // namespace sherd
