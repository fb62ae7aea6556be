#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/checkpoint/checkpoint.h"

namespace sherd {

// How the files of a checkpoint are called, and how they get their place; shared by those who write
// weights and those who write training state.

// "shard-00002-of-00004.safetensors" for rank 1 of 4.
std::string ShardFileName(int rank, int world);
// Tells rank 0 that the file whose name it follows is written: the ShardFileInfo, serialised.
inline constexpr char kSidecarSuffix[] = ".done";
// Of the metadata of a shard file: ChunkChecksums of its entries, one behind the other.
inline constexpr char kChecksumsKey[] = "xxh3";

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
