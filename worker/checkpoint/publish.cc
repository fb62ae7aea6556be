#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/shard_files.h"

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

// The checksums of all entries' chunks, which whoever wrote the file left in its header.
absl::StatusOr<std::vector<uint64_t>> ChecksumsOf(const std::string& path,
                                                  const SafetensorsHeader& header) {
  int64_t chunks = 0;
  for (const SafetensorsEntry& entry : header.entries) chunks += ChunksOf(entry.bytes);
  std::vector<uint64_t> checksums;
  const auto found = header.metadata.find(kChecksumsKey);
  if (found == header.metadata.end() || !ParseChecksums(found->second, checksums) ||
      static_cast<int64_t>(checksums.size()) != chunks) {
    return absl::InternalError(absl::StrCat(path, " does not hold the checksums of its tensors"));
  }
  return checksums;
}

int64_t EndOf(const SafetensorsHeader& header) {
  if (header.entries.empty()) return header.bytes;
  return header.entries.back().offset + header.entries.back().bytes;
}

absl::Status AddPieces(const std::string& path, int64_t bytes, int64_t shard,
                       TensorsByName& tensors) {
  SHERD_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensorsHeader(path));
  if (EndOf(header) != bytes) {
    return absl::InternalError(
        absl::StrCat(path, " has ", EndOf(header), " bytes where ", bytes, " were written"));
  }
  SHERD_ASSIGN_OR_RETURN(const std::vector<uint64_t> checksums, ChecksumsOf(path, header));
  auto next = checksums.begin();
  for (const SafetensorsEntry& entry : header.entries) {
    const PieceName name = ParsePieceName(entry.name);
    const auto found = tensors.find(name.tensor);
    if (found == tensors.end()) {
      return absl::InternalError(
          absl::StrCat(path, " holds \"", entry.name, "\", which is not of the model"));
    }
    std::optional<StoredPiece> piece = PieceOf(found->second, name, entry, shard);
    if (!piece) {
      return absl::InternalError(absl::StrCat(path, " holds \"", entry.name, "\" in a wrong size"));
    }
    piece->xxh3.assign(next, next + ChunksOf(entry.bytes));
    next += ChunksOf(entry.bytes);
    found->second.pieces.push_back(*std::move(piece));
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
    SHERD_RETURN_IF_ERROR(AddPieces(absl::StrCat(staging, "/", shards[i].file), shards[i].bytes,
                                    static_cast<int64_t>(i), tensors));
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

// What ranks of another attempt left in the staging directory, and sidecars.
absl::Status RemoveStrangers(FileSystem& files, const std::string& staging,
                             const Manifest& manifest) {
  std::set<std::string> ours = {kManifestFile};
  for (const ShardFileInfo& shard : manifest.shards) ours.insert(shard.file);
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> present, files.List(staging));
  for (const std::string& file : present) {
    if (ours.contains(file)) continue;
    SHERD_RETURN_IF_ERROR(files.Remove(absl::StrCat(staging, "/", file)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PublishStaged(FileSystem& files, const std::string& staging,
                           const std::string& directory, const CheckpointInfo& info,
                           absl::Span<const TensorDescription> tensors,
                           std::vector<ShardFileInfo> shards) {
  SHERD_ASSIGN_OR_RETURN(const Manifest manifest,
                         BuildManifest(staging, info, tensors, std::move(shards)));
  // What nobody could read must not replace what can be read.
  SHERD_RETURN_IF_ERROR(ParseManifest(FormatManifest(manifest)).status());
  SHERD_RETURN_IF_ERROR(WriteManifest(files, staging, manifest));
  SHERD_RETURN_IF_ERROR(RemoveStrangers(files, staging, manifest));
  // The entries must be durable before the name that makes them count (F43).
  SHERD_RETURN_IF_ERROR(files.SyncDirectory(staging));
  SHERD_RETURN_IF_ERROR(files.RenameOrExchange(staging, directory));
  absl::Status durable = files.SyncDirectory(ParentOf(directory));
  if (!durable.ok()) {
    // What stood under the name before takes it back; the caller discards the staging directory.
    files.RenameOrExchange(directory, staging).IgnoreError();
    return durable;
  }
  // An older checkpoint of the same name, if there was one.
  files.Remove(staging).IgnoreError();
  return absl::OkStatus();
}

absl::Status PublishCheckpoint(FileSystem& files, const std::string& directory,
                               const CheckpointInfo& info,
                               absl::Span<const TensorDescription> tensors,
                               std::vector<ShardFileInfo> shards) {
  return PublishStaged(files, StagingDirectory(directory, info), directory, info, tensors,
                       std::move(shards));
}

}  // namespace sherd
