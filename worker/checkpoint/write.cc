#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
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

static_assert(std::endian::native == std::endian::little, "safetensors data are little endian");

// Appends to a file, piece by piece of a tensor and chunk by chunk of a piece.
class HashingWriter {
 public:
  explicit HashingWriter(OutputFile& file)
      : file_(file), state_(XXH3_createState(), &XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  // Of whole chunks, but for the last: a full disk, and a cancelled save, is noticed between two.
  absl::Status Append(absl::string_view bytes, std::vector<uint64_t>* checksums = nullptr) {
    while (!bytes.empty()) {
      const absl::string_view chunk = bytes.substr(0, kChunkBytes);
      SHERD_RETURN_IF_ERROR(file_.Append(chunk));
      XXH3_64bits_update(state_.get(), chunk.data(), chunk.size());
      if (checksums != nullptr) checksums->push_back(Checksum(chunk));
      bytes_ += static_cast<int64_t>(chunk.size());
      bytes.remove_prefix(chunk.size());
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

absl::StatusOr<ShardFileInfo> WriteShard(FileSystem& files, const std::string& staging, int rank,
                                         int world, absl::Span<const TensorRange> ranges) {
  std::vector<SafetensorsEntry> entries;
  for (const TensorRange& range : ranges) {
    if (range.begin < range.end) entries.push_back(EntryOf(range));
  }
  WrittenShard written;
  written.shard.file = ShardFileName(rank, world);
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                         files.Create(absl::StrCat(staging, "/", written.shard.file)));
  HashingWriter writer(*file);
  SHERD_RETURN_IF_ERROR(writer.Append(FormatSafetensorsHeader(entries, {})));
  for (const TensorRange& range : ranges) {
    if (range.begin >= range.end) continue;
    SHERD_RETURN_IF_ERROR(writer.Append(BytesOf(range), &written.checksums));
  }
  SHERD_RETURN_IF_ERROR(file->Sync());
  written.shard.bytes = writer.bytes();
  written.shard.xxh3 = writer.digest();
  SHERD_RETURN_IF_ERROR(WriteSidecar(files, staging, written));
  return written.shard;
}

}  // namespace sherd
