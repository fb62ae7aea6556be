#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/checkpoint.h"

namespace sherd {

// How the files of a checkpoint are called, and how they get their place; shared by those who write
// weights and those who write training state.

// "shard-00002-of-00004.safetensors" for rank 1 of 4.
std::string ShardFileName(int rank, int world);
// What a rank has written. It stands beside its shard file until that is published, and tells that
// the file is complete.
struct WrittenShard {
  ShardFileInfo shard;
  // ChunkChecksums of its entries, one behind the other.
  std::vector<uint64_t> checksums;
};
absl::Status WriteSidecar(FileSystem& files, const std::string& staging,
                          const WrittenShard& written);
// kNotFound or kDataLoss names the sidecar.
absl::StatusOr<WrittenShard> ReadSidecar(const std::string& staging, const std::string& file);

// Writes a small file whole and durable.
absl::Status WriteFile(FileSystem& files, const std::string& path, absl::string_view text);

// Whether a file of that name may be of a checkpoint's directory.
bool BelongsToCheckpoint(absl::string_view file);
// kFailedPrecondition.
absl::Status NotOfACheckpoint(absl::string_view directory, absl::string_view file);

std::string ParentOf(const std::string& path);

// As PublishCheckpoint, from a staging directory of any name below the same parent as `directory`.
// Files in it that are not of the checkpoint are removed.
absl::Status PublishStaged(FileSystem& files, const std::string& staging,
                           const std::string& directory, const CheckpointInfo& info,
                           absl::Span<const TensorDescription> tensors,
                           std::vector<ShardFileInfo> shards);

}  // namespace sherd
