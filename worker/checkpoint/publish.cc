#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/safetensors.h"

namespace sherd {
namespace {

using TensorsByName = std::map<std::string, StoredTensor>;

// Takes "NAME[begin:end]" apart; a name without a range is a whole tensor.
struct NamedRange {
  std::string name;
  bool whole = true;
  int64_t begin = 0;
  int64_t end = 0;
};

NamedRange ParseRange(const std::string& entry) {
  NamedRange range{entry};
  const size_t open = entry.rfind('[');
  if (open == std::string::npos || entry.back() != ']') return range;
  const std::vector<std::string> ends =
      absl::StrSplit(entry.substr(open + 1, entry.size() - open - 2), ':');
  if (ends.size() == 2 && absl::SimpleAtoi(ends[0], &range.begin) &&
      absl::SimpleAtoi(ends[1], &range.end)) {
    range.name = entry.substr(0, open);
    range.whole = false;
  }
  return range;
}

absl::Status AddPieces(const std::string& path, int64_t shard, TensorsByName& tensors) {
  SHERD_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensorsHeader(path));
  for (const SafetensorsEntry& entry : header.entries) {
    NamedRange range = ParseRange(entry.name);
    const auto found = tensors.find(range.name);
    if (found == tensors.end()) {
      return absl::InternalError(
          absl::StrCat(path, " holds \"", entry.name, "\", which is not of the model"));
    }
    StoredTensor& tensor = found->second;
    if (range.whole) range.end = tensor.elements;
    if (entry.dtype != tensor.dtype || entry.bytes != (range.end - range.begin) * 4) {
      return absl::InternalError(absl::StrCat(path, " holds \"", entry.name, "\" in a wrong size"));
    }
    tensor.pieces.push_back({range.begin, range.end, shard, entry.offset});
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> BuildManifest(const std::string& staging, const CheckpointInfo& info,
                                       absl::Span<const TensorDescription> expected,
                                       std::vector<ShardFileInfo> shards) {
  TensorsByName tensors;
  for (const TensorDescription& tensor : expected) {
    tensors[tensor.name] = {tensor.name, "F32", tensor.shape, tensor.elements, {}};
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    SHERD_RETURN_IF_ERROR(
        AddPieces(absl::StrCat(staging, "/", shards[i].file), static_cast<int64_t>(i), tensors));
  }
  Manifest manifest{info, std::move(shards), {}};
  for (const TensorDescription& description : expected) {
    StoredTensor& tensor = tensors[description.name];
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const StoredPiece& a, const StoredPiece& b) { return a.begin < b.begin; });
    SHERD_RETURN_IF_ERROR(CheckPieces(tensor, manifest.shards));
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

absl::Status WriteManifest(FileSystem& files, const std::string& staging,
                           const Manifest& manifest) {
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                         files.Create(absl::StrCat(staging, "/", kManifestFile)));
  SHERD_RETURN_IF_ERROR(file->Append(FormatManifest(manifest)));
  return file->Sync();
}

}  // namespace

absl::Status PublishCheckpoint(FileSystem& files, const std::string& directory,
                               const CheckpointInfo& info,
                               absl::Span<const TensorDescription> tensors,
                               std::vector<ShardFileInfo> shards) {
  const std::string staging = StagingDirectory(directory, info);
  SHERD_ASSIGN_OR_RETURN(const Manifest manifest,
                         BuildManifest(staging, info, tensors, std::move(shards)));
  SHERD_RETURN_IF_ERROR(WriteManifest(files, staging, manifest));
  // The entries must be durable before the name that makes them count (F43).
  SHERD_RETURN_IF_ERROR(files.SyncDirectory(staging));
  SHERD_RETURN_IF_ERROR(files.RenameOrExchange(staging, directory));
  const std::filesystem::path parent = std::filesystem::path(directory).parent_path();
  absl::Status durable = files.SyncDirectory(parent.empty() ? "." : parent.string());
  if (!durable.ok()) {
    // What stood under the name before takes it back; the caller discards the staging directory.
    files.RenameOrExchange(directory, staging).IgnoreError();
    return durable;
  }
  // An older checkpoint of the same name, if there was one.
  files.Remove(staging).IgnoreError();
  return absl::OkStatus();
}

}  // namespace sherd
