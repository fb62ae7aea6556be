#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/shard_files.h"

namespace sherd {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data are little endian");

// Bytes a write call at most: tells of a full disk early.
constexpr size_t kWriteBytes = 8 << 20;

class HashingWriter {
 public:
  explicit HashingWriter(OutputFile& file)
      : file_(file), state_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  absl::Status Append(absl::string_view bytes) {
    while (!bytes.empty()) {
      const absl::string_view part = bytes.substr(0, kWriteBytes);
      SHERD_RETURN_IF_ERROR(file_.Append(part));
      XXH3_64bits_update(state_.get(), part.data(), part.size());
      bytes_ += static_cast<int64_t>(part.size());
      bytes.remove_prefix(part.size());
    }
    return absl::OkStatus();
  }
  int64_t bytes() const { return bytes_; }
  uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  OutputFile& file_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
  int64_t bytes_ = 0;
};

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

SafetensorsEntry EntryOf(const TensorRange& range) {
  PieceName name{range.name, std::nullopt, std::nullopt};
  // Of the tensor, or of the block of its columns.
  std::vector<int64_t> shape = range.shape;
  if (range.columns != ElementRange{0, ColumnsOf(range.shape)}) {
    name.columns = range.columns;
    shape.back() = range.columns.size();
  }
  if (range.begin != 0 || range.end != ElementsOf(shape)) {
    name.elements = {range.begin, range.end};
    shape = {range.end - range.begin};
  }
  return {.name = FormatPieceName(name), .dtype = "F32", .shape = std::move(shape)};
}

absl::string_view BytesOf(const TensorRange& range) {
  return {reinterpret_cast<const char*>(range.data),
          static_cast<size_t>(range.end - range.begin) * sizeof(float)};
}

}  // namespace

bool BelongsToCheckpoint(absl::string_view file) {
  return file == kManifestFile ||
         (absl::StartsWith(file, "shard-") &&
          (absl::EndsWith(file, ".safetensors") || absl::EndsWith(file, kSidecarSuffix)));
}

absl::Status NotOfACheckpoint(absl::string_view directory, absl::string_view file) {
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " holds ", file,
                   ", which is not of a checkpoint; give the weights a directory of their own"));
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::Status CheckReplaceable(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> present = files.List(directory);
  if (absl::IsNotFound(present.status())) return absl::OkStatus();
  SHERD_RETURN_IF_ERROR(present.status());
  for (const std::string& file : *present) {
    if (!BelongsToCheckpoint(file)) return NotOfACheckpoint(directory, file);
  }
  return absl::OkStatus();
}

std::vector<TensorDescription> WeightsOf(const Inventory& inventory) {
  std::vector<TensorDescription> tensors;
  for (const Unit& unit : inventory.units) {
    for (const Parameter& parameter : unit.parameters) {
      const std::vector<int64_t>& shape = parameter.slice.shape;
      tensors.push_back({parameter.name, shape, ElementsOf(shape)});
    }
  }
  return tensors;
}

std::string StagingDirectory(const std::string& directory, const CheckpointInfo& info) {
  return absl::StrCat(ParentOf(directory), "/.", info.job_id, ".epoch-", info.epoch, ".partial");
}

absl::Status PrepareStaging(FileSystem& files, const std::string& directory,
                            const CheckpointInfo& info) {
  SHERD_RETURN_IF_ERROR(CheckReplaceable(files, directory));
  const std::string staging = StagingDirectory(directory, info);
  SHERD_RETURN_IF_ERROR(files.Remove(staging));
  return files.MakeDirectories(staging);
}

void DiscardStaging(FileSystem& files, const std::string& directory, const CheckpointInfo& info) {
  files.Remove(StagingDirectory(directory, info)).IgnoreError();
}

std::string ShardFileName(int rank, int world) {
  return absl::StrFormat("shard-%05d-of-%05d.safetensors", rank + 1, world);
}

absl::StatusOr<ShardFileInfo> WriteShard(FileSystem& files, const std::string& staging, int rank,
                                         int world, absl::Span<const TensorRange> ranges) {
  std::vector<SafetensorsEntry> entries;
  std::vector<uint64_t> checksums;
  for (const TensorRange& range : ranges) {
    if (range.begin >= range.end) continue;
    entries.push_back(EntryOf(range));
    const std::vector<uint64_t> chunks = ChunkChecksums(BytesOf(range));
    checksums.insert(checksums.end(), chunks.begin(), chunks.end());
  }
  ShardFileInfo shard;
  shard.file = ShardFileName(rank, world);
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                         files.Create(absl::StrCat(staging, "/", shard.file)));
  HashingWriter writer(*file);
  SHERD_RETURN_IF_ERROR(writer.Append(
      FormatSafetensorsHeader(entries, {{kChecksumsKey, FormatChecksums(checksums)}})));
  for (const TensorRange& range : ranges) {
    if (range.begin < range.end) SHERD_RETURN_IF_ERROR(writer.Append(BytesOf(range)));
  }
  SHERD_RETURN_IF_ERROR(file->Sync());
  shard.bytes = writer.bytes();
  shard.xxh3 = writer.digest();
  return shard;
}

}  // namespace sherd
