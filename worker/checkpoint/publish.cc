#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/safetensors.h"

namespace sherd {
namespace {

using TensorsByName = std::map<std::string, StoredTensor>;

bool IsWithin(const ElementRange& range, int64_t size) {
  return 0 <= range.begin && range.begin <= range.end && range.end <= size;
}

// The piece that `entry` holds of `tensor`; nothing when it names elements that the tensor does not
// have, or its size is not theirs.
std::optional<StoredPiece> PieceOf(const StoredTensor& tensor, const PieceName& name,
                                   const SafetensorsEntry& entry, int64_t shard) {
  const int64_t columns = ColumnsOf(tensor.shape);
  StoredPiece piece{name.columns.value_or(ElementRange{0, columns}), 0, 0, shard, entry.offset};
  if (!IsWithin(piece.columns, columns)) return std::nullopt;
  const int64_t rows = columns == 0 ? 0 : tensor.elements / columns;
  const int64_t block = rows * piece.columns.size();
  const ElementRange elements = name.elements.value_or(ElementRange{0, block});
  if (!IsWithin(elements, block)) return std::nullopt;
  piece.begin = elements.begin;
  piece.end = elements.end;
  if (entry.dtype != tensor.dtype || entry.bytes != elements.size() * 4) return std::nullopt;
  return piece;
}

absl::Status AddPieces(const std::string& path, int64_t shard, TensorsByName& tensors) {
  SHERD_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensorsHeader(path));
  for (const SafetensorsEntry& entry : header.entries) {
    const PieceName name = ParsePieceName(entry.name);
    const auto found = tensors.find(name.tensor);
    if (found == tensors.end()) {
      return absl::InternalError(
          absl::StrCat(path, " holds \"", entry.name, "\", which is not of the model"));
    }
    const std::optional<StoredPiece> piece = PieceOf(found->second, name, entry, shard);
    if (!piece) {
      return absl::InternalError(absl::StrCat(path, " holds \"", entry.name, "\" in a wrong size"));
    }
    found->second.pieces.push_back(*piece);
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
              [](const StoredPiece& a, const StoredPiece& b) {
                return std::tie(a.columns.begin, a.columns.end, a.begin) <
                       std::tie(b.columns.begin, b.columns.end, b.begin);
              });
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
  // What nobody could read must not replace what can be read.
  SHERD_RETURN_IF_ERROR(ParseManifest(FormatManifest(manifest)).status());
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
