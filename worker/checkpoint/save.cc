#include "worker/checkpoint/save.h"

#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/shard_files.h"

namespace sherd {
namespace {

constexpr absl::string_view kPartial = ".partial";
constexpr absl::string_view kRemoving = ".removing";
// What a job leaves beside its checkpoints.
constexpr const char* kJobFiles[] = {kTokensDirectory, kMetricsFile, kEventsFile};

std::string NameOfStep(int64_t step, int64_t epoch) {
  return absl::StrFormat("step-%08d-epoch-%d", step, epoch);
}

bool IsTransient(absl::string_view name) {
  return absl::StartsWith(name, ".") &&
         (absl::EndsWith(name, kPartial) || absl::EndsWith(name, kRemoving));
}

// The epoch of the job that puts something together under that name.
std::optional<int64_t> EpochOfPartial(absl::string_view name, absl::string_view job_id) {
  if (!absl::ConsumePrefix(&name, absl::StrCat(".", job_id, ".")) ||
      !absl::ConsumeSuffix(&name, kPartial)) {
    return std::nullopt;
  }
  if (const auto step = ParseStepName(name)) return step->epoch;
  int64_t epoch = 0;
  // Of the weights.
  if (!absl::ConsumePrefix(&name, "epoch-") || !absl::SimpleAtoi(name, &epoch)) return std::nullopt;
  return epoch;
}

absl::StatusOr<std::vector<ShardFileInfo>> ReadSidecars(const std::string& staging, int world) {
  std::vector<ShardFileInfo> shards;
  for (int rank = 0; rank < world; ++rank) {
    SHERD_ASSIGN_OR_RETURN(WrittenShard written, ReadSidecar(staging, ShardFileName(rank, world)));
    shards.push_back(std::move(written.shard));
  }
  return shards;
}

absl::Status MoveLatest(FileSystem& files, const std::string& root, const CheckpointInfo& info) {
  const std::string next = absl::StrCat(root, "/.", kLatestFile, kPartial);
  const std::string text = FormatLatest(NameOfStep(info.step, info.epoch), info.training->lineage);
  SHERD_RETURN_IF_ERROR(WriteFile(files, next, text));
  SHERD_RETURN_IF_ERROR(files.Rename(next, absl::StrCat(root, "/", kLatestFile)));
  return files.SyncDirectory(root);
}

// What is half-removed must never look whole: it loses its name before its files.
absl::Status RemoveCheckpoint(FileSystem& files, const std::string& root, const std::string& path) {
  const std::string name = path.substr(root.size() + 1);
  const std::string aside = absl::StrCat(root, "/.", name, kRemoving);
  SHERD_RETURN_IF_ERROR(files.Remove(aside));
  SHERD_RETURN_IF_ERROR(files.RenameOrExchange(path, aside));
  SHERD_RETURN_IF_ERROR(files.SyncDirectory(root));
  return files.Remove(aside);
}

absl::Status RemoveOlder(FileSystem& files, const std::string& root, absl::string_view lineage,
                         int64_t keep) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> newest_first, StepDirectories(files, root));
  int64_t sound = 0;
  absl::Status first_error;
  for (const std::string& path : newest_first) {
    const absl::StatusOr<Manifest> manifest = ReadManifest(path);
    if (!manifest.ok() || !manifest->info.training || manifest->info.training->lineage != lineage) {
      continue;
    }
    if (sound >= keep) {
      first_error.Update(RemoveCheckpoint(files, root, path));
    } else if (ReadSoundManifest(path).ok()) {
      ++sound;
    }
  }
  return first_error;
}

// Removes the entries of `root` that `chosen` accepts.
template <typename Chosen>
absl::Status RemoveEntries(FileSystem& files, const std::string& root, const Chosen& chosen) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(root);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  SHERD_RETURN_IF_ERROR(names.status());
  absl::Status first_error;
  for (const std::string& name : *names) {
    if (chosen(name)) first_error.Update(files.Remove(absl::StrCat(root, "/", name)));
  }
  return first_error;
}

}  // namespace

std::string StepDirectory(const std::string& root, int64_t step, int64_t epoch) {
  return absl::StrCat(root, "/", NameOfStep(step, epoch));
}

std::string FinalDirectory(const std::string& root) { return absl::StrCat(root, "/final"); }

std::string SaveStaging(const std::string& root, const CheckpointInfo& info) {
  return absl::StrCat(root, "/.", info.job_id, ".", NameOfStep(info.step, info.epoch), kPartial);
}

absl::Status CheckRoot(FileSystem& files, const std::string& root) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(root);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  SHERD_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (name == "final" || name == kLatestFile || ParseStepName(name) || IsTransient(name) ||
        BelongsToCheckpoint(name) || absl::c_linear_search(kJobFiles, name)) {
      continue;
    }
    return NotOfACheckpoint(root, name);
  }
  return CheckReplaceable(files, FinalDirectory(root));
}

absl::Status WriteSave(FileSystem& files, const std::string& root, const CheckpointInfo& info,
                       int rank, int world, absl::Span<const TensorRange> ranges) {
  const std::string staging = SaveStaging(root, info);
  SHERD_RETURN_IF_ERROR(files.MakeDirectories(staging));
  return WriteShard(files, staging, rank, world, ranges).status();
}

absl::StatusOr<PublishedSave> PublishSave(FileSystem& files, const std::string& root,
                                          const CheckpointInfo& info, int world,
                                          absl::Span<const TensorDescription> tensors) {
  const std::string staging = SaveStaging(root, info);
  PublishedSave published{StepDirectory(root, info.step, info.epoch), 0};
  if (!info.training) {
    return absl::InvalidArgumentError(
        absl::StrCat(published.path, " would hold weights without what training needs"));
  }
  SHERD_RETURN_IF_ERROR(CheckReplaceable(files, published.path));
  SHERD_ASSIGN_OR_RETURN(std::vector<ShardFileInfo> shards, ReadSidecars(staging, world));
  for (const ShardFileInfo& shard : shards) published.bytes += shard.bytes;
  SHERD_RETURN_IF_ERROR(
      PublishStaged(files, staging, published.path, info, tensors, std::move(shards)));
  MoveLatest(files, root, info).IgnoreError();
  return published;
}

void DiscardSave(FileSystem& files, const std::string& root, const CheckpointInfo& info) {
  files.Remove(SaveStaging(root, info)).IgnoreError();
}

absl::Status Retain(FileSystem& files, const std::string& root, const CheckpointInfo& info,
                    int64_t keep) {
  absl::Status status = RemoveEntries(files, root, [&](const std::string& name) {
    const std::optional<int64_t> epoch = EpochOfPartial(name, info.job_id);
    return absl::EndsWith(name, kRemoving) ? IsTransient(name)
                                           : epoch.has_value() && *epoch < info.epoch;
  });
  if (keep > 0 && info.training) {
    status.Update(RemoveOlder(files, root, info.training->lineage, keep));
  }
  return status;
}

absl::Status RemoveAbandoned(FileSystem& files, const std::string& root) {
  return RemoveEntries(files, root, &IsTransient);
}

}  // namespace sherd
