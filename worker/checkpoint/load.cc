#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/piece_name.h"
#include "worker/checkpoint/readable_file.h"

namespace sherd {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr int64_t kElementBytes = sizeof(float);

absl::StatusOr<uint64_t> ChecksumOf(const ReadableFile& file) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> chunk(static_cast<size_t>(std::min(kReadBytes, file.bytes())));
  for (int64_t offset = 0; offset < file.bytes(); offset += kReadBytes) {
    const int64_t bytes = std::min(kReadBytes, file.bytes() - offset);
    SHERD_RETURN_IF_ERROR(file.Read(offset, bytes, chunk.data()));
    XXH3_64bits_update(state.get(), chunk.data(), static_cast<size_t>(bytes));
  }
  return XXH3_64bits_digest(state.get());
}

absl::StatusOr<ReadableFile> OpenVerified(const std::string& path, const ShardFileInfo& shard) {
  SHERD_ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::OpenSized(path, shard.bytes));
  SHERD_ASSIGN_OR_RETURN(const uint64_t checksum, ChecksumOf(file));
  if (checksum != shard.xxh3) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: its checksum is wrong"));
  }
  return file;
}

// Moves elements [begin, end) of a block of columns to their places in the tensor.
void Scatter(const float* from, int64_t begin, int64_t end, const ElementRange& columns,
             int64_t tensor_columns, float* tensor) {
  const int64_t width = columns.size();
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / width;
    const int64_t column = at % width;
    const int64_t count = std::min(width - column, end - at);
    std::memcpy(tensor + row * tensor_columns + columns.begin + column, from + (at - begin),
                static_cast<size_t>(count * kElementBytes));
    at += count;
  }
}

absl::Status LoadPiece(const ReadableFile& file, const StoredPiece& piece, int64_t tensor_columns,
                       float* tensor) {
  if (piece.columns.size() == tensor_columns) {
    return file.Read(piece.offset, (piece.end - piece.begin) * kElementBytes, tensor + piece.begin);
  }
  constexpr int64_t kChunk = kReadBytes / kElementBytes;
  std::vector<float> chunk(static_cast<size_t>(std::min(kChunk, piece.end - piece.begin)));
  for (int64_t at = piece.begin; at < piece.end; at += kChunk) {
    const int64_t end = std::min(at + kChunk, piece.end);
    SHERD_RETURN_IF_ERROR(file.Read(piece.offset + (at - piece.begin) * kElementBytes,
                                    (end - at) * kElementBytes, chunk.data()));
    Scatter(chunk.data(), at, end, piece.columns, tensor_columns, tensor);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", kManifestFile);
  const absl::StatusOr<std::string> text = ReadWhole(path, kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(directory, " holds no complete checkpoint: ", text.status().message()));
  }
  SHERD_RETURN_IF_ERROR(text.status());
  absl::StatusOr<Manifest> manifest = ParseManifest(*text);
  if (manifest.ok()) return manifest;
  return absl::Status(manifest.status().code(),
                      absl::StrCat(path, ": ", manifest.status().message()));
}

absl::Status LoadTensors(const std::string& directory, const Manifest& manifest,
                         const std::function<float*(const StoredTensor&)>& destination) {
  std::vector<ReadableFile> files;
  for (const ShardFileInfo& shard : manifest.shards) {
    SHERD_ASSIGN_OR_RETURN(ReadableFile file,
                           OpenVerified(absl::StrCat(directory, "/", shard.file), shard));
    files.push_back(std::move(file));
  }
  for (const StoredTensor& tensor : manifest.tensors) {
    float* out = destination(tensor);
    if (out == nullptr) continue;
    for (const StoredPiece& piece : tensor.pieces) {
      SHERD_RETURN_IF_ERROR(
          LoadPiece(files[static_cast<size_t>(piece.shard)], piece, ColumnsOf(tensor.shape), out));
    }
  }
  return absl::OkStatus();
}

}  // namespace sherd
