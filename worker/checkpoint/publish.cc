#include <algorithm>
#include <map>
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

int64_t EndOf(const SafetensorsHeader& header) {
  if (header.entries.empty()) return header.bytes;
  return header.entries.back().offset + header.entries.back().bytes;
}

// Hands out a file's checksums, entry by entry.
class NextChecksums {
 public:
  explicit NextChecksums(std::vector<uint64_t> checksums) : checksums_(std::move(checksums)) {}
  // Nothing when there are too few.
  std::vector<uint64_t> Take(int64_t bytes) {
    const int64_t end = at_ + ChunksOf(bytes);
    if (end > static_cast<int64_t>(checksums_.size())) return {};
    const auto first = checksums_.begin() + at_;
    at_ = end;
    return {first, checksums_.begin() + end};
  }
  bool AllTaken() const { return at_ == static_cast<int64_t>(checksums_.size()); }

 private:
  const std::vector<uint64_t> checksums_;
  int64_t at_ = 0;
};

absl::Status AddPieces(const std::string& staging, const ShardFileInfo& shard, int64_t index,
                       TensorsByName& tensors) {
  const std::string path = absl::StrCat(staging, "/", shard.file);
  SHERD_ASSIGN_OR_RETURN(WrittenShard written, ReadSidecar(staging, shard.file));
  SHERD_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensorsHeader(path));
  if (written.shard != shard || EndOf(header) != shard.bytes) {
    return absl::InternalError(absl::StrCat(path, " is not what its rank has written"));
  }
  NextChecksums checksums(std::move(written.checksums));
  for (const SafetensorsEntry& entry : header.entries) {
    const PieceName name = ParsePieceName(entry.name);
    const auto found = tensors.find(name.tensor);
    if (found == tensors.end()) {
      return absl::InternalError(
          absl::StrCat(path, " holds \"", entry.name, "\", which is not of the model"));
    }
    std::optional<StoredPiece> piece = PieceOf(found->second, name, entry, index);
    if (!piece) {
      return absl::InternalError(absl::StrCat(path, " holds \"", entry.name, "\" in a wrong size"));
    }
    piece->xxh3 = checksums.Take(entry.bytes);
    found->second.pieces.push_back(*std::move(piece));
  }
  if (checksums.AllTaken()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(path, " has more checksums than tensors"));
}

absl::StatusOr<Manifest> BuildManifest(const std::string& staging, const CheckpointInfo& info,
                                       absl::Span<const TensorDescription> expected,
                                       std::vector<ShardFileInfo> shards) {
  TensorsByName tensors;
  for (const TensorDescription& tensor : expected) {
    tensors[tensor.name] = {tensor.name, "F32", tensor.shape, tensor.elements, {}};
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    SHERD_RETURN_IF_ERROR(AddPieces(staging, shards[i], static_cast<int64_t>(i), tensors));
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
  const std::string text = FormatManifest(manifest);
  SHERD_RETURN_IF_ERROR(ParseManifest(text).status());
  SHERD_RETURN_IF_ERROR(WriteFile(files, absl::StrCat(staging, "/", kManifestFile), text));
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
