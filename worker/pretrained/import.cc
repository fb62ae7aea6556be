#include "worker/pretrained/import.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/tokenizer_names.h"
#include "worker/pretrained/parallel_for.h"
#include "worker/pretrained/pretrained_folder.h"

namespace sherd {
namespace {

constexpr char kTokenizerFile[] = "tokenizer.json";

// Cuts the tensors, one behind the other, into runs of `most` elements; without data yet.
std::vector<std::vector<TensorRange>> CutIntoShards(const std::vector<TensorDescription>& tensors,
                                                    int64_t most) {
  std::vector<std::vector<TensorRange>> shards(1);
  int64_t room = most;
  for (const TensorDescription& tensor : tensors) {
    const int64_t columns = tensor.shape.size() == 1 ? 1 : tensor.shape.back();
    for (int64_t begin = 0; begin < tensor.elements;) {
      if (room == 0) {
        shards.emplace_back();
        room = most;
      }
      const int64_t end = std::min(tensor.elements, begin + room);
      shards.back().push_back({tensor.name, tensor.shape, {0, columns}, begin, end, nullptr});
      room -= end - begin;
      begin = end;
    }
  }
  return shards;
}

// Reads what belongs into a shard file, and writes that.
absl::StatusOr<ShardFileInfo> WriteOne(const PretrainedFolder& folder, FileSystem& files,
                                       const std::string& staging, int rank, int world,
                                       std::vector<TensorRange> ranges) {
  int64_t elements = 0;
  for (const TensorRange& range : ranges) elements += range.end - range.begin;
  std::vector<float> values(static_cast<size_t>(elements));
  std::vector<TensorTarget> targets;
  float* next = values.data();
  for (TensorRange& range : ranges) {
    range.data = next;
    targets.push_back({range.name, range.shape, range.columns, range.begin, range.end, next});
    next += range.end - range.begin;
  }
  SHERD_RETURN_IF_ERROR(folder.Load(targets, /*threads=*/1).status());
  return WriteShard(files, staging, rank, world, ranges);
}

// What a manifest can hold: paths need not be UTF-8.
std::string OrUnknown(std::string text) {
  return FindInvalidUtf8(text).has_value() ? std::string(kUnknownTokenizer) : std::move(text);
}

// The tokenizer of the tokens that the model was trained on, as far as the folder says it.
std::string TokenizerOf(const PretrainedFolder& folder) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::absolute(std::filesystem::path(folder.path()) / kTokenizerFile, error);
  if (error || !std::filesystem::is_regular_file(path, error)) return kUnknownTokenizer;
  return OrUnknown(path.lexically_normal().string());
}

}  // namespace

absl::Status CheckFresh(const std::string& directory) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(directory, error);
  if (!std::filesystem::exists(status)) return absl::OkStatus();
  if (!std::filesystem::is_directory(status)) {
    return absl::FailedPreconditionError(absl::StrCat(directory, " is no directory"));
  }
  if (std::filesystem::is_empty(directory, error) && !error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " is not empty; name a directory that is yet to be made"));
}

absl::StatusOr<Transferred> ImportFolder(const ImportOptions& options) {
  std::string target = options.checkpoint;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  SHERD_RETURN_IF_ERROR(CheckFresh(target));
  SHERD_ASSIGN_OR_RETURN(const PretrainedFolder folder, PretrainedFolder::Open("", options.folder));
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  CheckpointInfo info;
  // Names the staging directory too: two imports into one parent must not meet there.
  info.job_id =
      absl::StrCat("import-", OrUnknown(std::filesystem::path(target).filename().string()));
  info.model = folder.shape();
  info.tokenizer = TokenizerOf(folder);
  const std::vector<TensorDescription> tensors = WeightsOf(BuildInventory(info.model));
  const std::vector<std::vector<TensorRange>> shards =
      CutIntoShards(tensors, options.shard_bytes / static_cast<int64_t>(sizeof(float)));
  const int world = static_cast<int>(shards.size());

  SHERD_RETURN_IF_ERROR(PrepareStaging(*files, target, info));
  absl::Cleanup discard = [&] { DiscardStaging(*files, target, info); };
  std::vector<ShardFileInfo> written(shards.size());
  SHERD_RETURN_IF_ERROR(
      ParallelFor(shards.size(), options.threads, [&](size_t index) -> absl::Status {
        SHERD_ASSIGN_OR_RETURN(written[index],
                               WriteOne(folder, *files, StagingDirectory(target, info),
                                        static_cast<int>(index), world, shards[index]));
        return absl::OkStatus();
      }));
  Transferred done{target, info.model, 0, 0, world};
  for (const TensorDescription& tensor : tensors) done.parameters += tensor.elements;
  for (const ShardFileInfo& shard : written) done.bytes += shard.bytes;
  SHERD_RETURN_IF_ERROR(PublishCheckpoint(*files, target, info, tensors, std::move(written)));
  std::move(discard).Cancel();
  return done;
}

}  // namespace sherd
