#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/parameters.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// How a checkpoint comes to be. It appears under its name whole and durable, or not at all (F44):
//   rank 0:      PrepareStaging, then a barrier
//   every rank:  WriteShard with the ranges that it owns; an exchange of the ShardFileInfos
//   rank 0:      PublishCheckpoint, then a barrier
// When a rank's part fails, rank 0 calls DiscardStaging after the exchange that tells it so.
//
// Errors name the path and say what is wrong: kResourceExhausted (no space left),
// kPermissionDenied, … .

// Elements [begin, end) of the block `columns` of the columns of a tensor of fp32 values, in
// row-major order of that block.
struct TensorRange {
  std::string name;
  // Of the tensor.
  std::vector<int64_t> shape;
  ElementRange columns;
  int64_t begin = 0;
  int64_t end = 0;
  const float* data = nullptr;  // (end − begin)
};

// Appends what elements `written` of a unit's flat buffer, the first of which is at `data`, are of
// the tensors. The unit may be a member's of a tensor-parallel group.
void AppendRanges(const Unit& unit, const ElementRange& written, const float* data,
                  std::vector<TensorRange>& ranges);

// A tensor that a checkpoint must hold.
struct TensorDescription {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements = 0;
};
// The tensors of all parameters, whole, in order; the same for every member of a tensor-parallel
// group.
std::vector<TensorDescription> WeightsOf(const Inventory& inventory);

// Where the checkpoint that is to become `directory` is put together: beside it, under a name of
// the job's and epoch's own, so that no other job or epoch writes there.
std::string StagingDirectory(const std::string& directory, const CheckpointInfo& info);

// Publishing replaces an older checkpoint, never anything else: kFailedPrecondition when
// `directory` exists and holds a file that is not of a checkpoint.
absl::Status CheckReplaceable(FileSystem& files, const std::string& directory);

// Makes the staging directory anew, and its parents. Errors of CheckReplaceable.
absl::Status PrepareStaging(FileSystem& files, const std::string& directory,
                            const CheckpointInfo& info);
// Best effort.
void DiscardStaging(FileSystem& files, const std::string& directory, const CheckpointInfo& info);

// Writes rank's file, "shard-00002-of-00004.safetensors" for rank 1 of 4, and makes it durable;
// then a small one beside it that tells of it, until it is published. A
// whole tensor goes by its name and shape, part of one by a name as in piece_name.h. A tensor may
// come in several ranges, which must not be equal; empty ranges are left out.
absl::StatusOr<ShardFileInfo> WriteShard(FileSystem& files, const std::string& staging, int rank,
                                         int world, absl::Span<const TensorRange> ranges);

// Checks that `shards` hold every element of `tensors` exactly once and nothing else, writes the
// manifest and gives the staging directory its final name. Whatever fails, what stood under that
// name before still stands there.
absl::Status PublishCheckpoint(FileSystem& files, const std::string& directory,
                               const CheckpointInfo& info,
                               absl::Span<const TensorDescription> tensors,
                               std::vector<ShardFileInfo> shards);

// Reads the manifest. kNotFound, naming the path, when there is no directory or none in it;
// kInvalidArgument or kDataLoss when it is damaged.
absl::StatusOr<Manifest> ReadManifest(const std::string& directory);

// Reads tensors of a checkpoint of any layout whole, after verifying size and checksum of every
// shard file (F46). `destination` says where (elements) floats go; nullptr leaves a tensor out.
// kDataLoss and kNotFound name the file.
absl::Status LoadTensors(const std::string& directory, const Manifest& manifest,
                         const std::function<float*(const StoredTensor&)>& destination);

}  // namespace sherd
