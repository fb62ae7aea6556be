#include "worker/checkpoint/shard_files.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "worker/checkpoint/chunk_checksums.h"
#include "worker/checkpoint/readable_file.h"

namespace sherd {
namespace {

constexpr char kSidecarSuffix[] = ".done";
// Of a shard of 64 TiB.
constexpr int64_t kMaxSidecarBytes = 256 << 20;

}  // namespace

std::string ShardFileName(int rank, int world) {
  return absl::StrFormat("shard-%05d-of-%05d.safetensors", rank + 1, world);
}

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

absl::Status WriteFile(FileSystem& files, const std::string& path, absl::string_view text) {
  SHERD_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file, files.Create(path));
  SHERD_RETURN_IF_ERROR(file->Append(text));
  return file->Sync();
}

absl::Status WriteSidecar(FileSystem& files, const std::string& staging,
                          const WrittenShard& written) {
  return WriteFile(
      files, absl::StrCat(staging, "/", written.shard.file, kSidecarSuffix),
      absl::StrCat(written.shard.Serialize(), "\n", FormatChecksums(written.checksums), "\n"));
}

absl::StatusOr<WrittenShard> ReadSidecar(const std::string& staging, const std::string& file) {
  const std::string path = absl::StrCat(staging, "/", file, kSidecarSuffix);
  SHERD_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path, kMaxSidecarBytes));
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  WrittenShard written;
  if (lines.size() != 3 || !lines[2].empty() || !ParseChecksums(lines[1], written.checksums)) {
    return absl::DataLossError(absl::StrCat(path, " describes no shard file"));
  }
  absl::StatusOr<ShardFileInfo> shard = ShardFileInfo::Parse(lines[0]);
  if (!shard.ok() || shard->file != file) {
    return absl::DataLossError(absl::StrCat(path, " does not describe ", file));
  }
  written.shard = *std::move(shard);
  return written;
}

}  // namespace sherd
