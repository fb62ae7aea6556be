#include "worker/checkpoint/list.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/verify.h"

namespace sherd {
namespace {

constexpr size_t kColumns = 7;
using Row = std::array<std::string, kColumns>;

bool HasManifest(const std::string& directory) {
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(directory, "/", kManifestFile), error);
}

absl::StatusOr<std::vector<std::string>> PathsAt(FileSystem& files, const std::string& directory) {
  std::vector<std::string> paths;
  if (HasManifest(directory)) paths.push_back(directory);
  if (HasManifest(FinalDirectory(directory))) paths.push_back(FinalDirectory(directory));
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> steps, StepDirectories(files, directory));
  paths.insert(paths.end(), steps.begin(), steps.end());
  if (!paths.empty()) return paths;
  return HintAtWeights(files, directory,
                       absl::NotFoundError(absl::StrCat(directory, " holds no checkpoint")));
}

ListedCheckpoint Listed(const std::string& path, Look look) {
  ListedCheckpoint listed;
  listed.path = path;
  if (const auto name = ParseStepName(std::filesystem::path(path).filename().string())) {
    listed.step = name->step;
    listed.epoch = name->epoch;
  }
  const absl::StatusOr<Manifest> manifest = ReadManifest(path);
  listed.state = manifest.status();
  if (!manifest.ok()) return listed;
  listed.kind = std::string(KindOf(manifest->info));
  listed.job = manifest->info.job_id;
  listed.step = manifest->info.step;
  listed.epoch = manifest->info.epoch;
  listed.ranks = static_cast<int64_t>(manifest->shards.size());
  for (const ShardFileInfo& shard : manifest->shards) listed.bytes += shard.bytes;
  listed.state =
      look == Look::kEveryByte ? VerifyFiles(path, *manifest) : ReadSoundManifest(path).status();
  return listed;
}

nlohmann::ordered_json OrNull(bool known, nlohmann::ordered_json value) {
  return known ? value : nlohmann::ordered_json();
}

}  // namespace

absl::StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(FileSystem& files,
                                                              const std::string& directory,
                                                              Look look) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> paths, PathsAt(files, directory));
  std::vector<ListedCheckpoint> checkpoints;
  for (const std::string& path : paths) checkpoints.push_back(Listed(path, look));
  return checkpoints;
}

nlohmann::ordered_json CheckpointsJson(const std::vector<ListedCheckpoint>& checkpoints) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListedCheckpoint& one : checkpoints) {
    const bool readable = !one.kind.empty();
    list.push_back({{"path", one.path},
                    {"kind", OrNull(readable, one.kind)},
                    {"step", OrNull(one.step >= 0, one.step)},
                    {"epoch", OrNull(one.epoch >= 0, one.epoch)},
                    {"job", OrNull(readable, one.job)},
                    {"bytes", OrNull(readable, one.bytes)},
                    {"ranks", OrNull(readable, one.ranks)},
                    {"sound", one.state.ok()},
                    {"error", std::string(one.state.message())}});
  }
  return list;
}

std::string CheckpointsTable(const std::vector<ListedCheckpoint>& checkpoints) {
  std::vector<Row> rows = {{"PATH", "KIND", "STEP", "EPOCH", "JOB", "BYTES", "STATE"}};
  for (const ListedCheckpoint& one : checkpoints) {
    const auto known = [&](bool is_known, const auto& value) {
      return is_known ? absl::StrCat(value) : std::string("-");
    };
    const bool readable = !one.kind.empty();
    rows.push_back({one.path, known(readable, one.kind), known(one.step >= 0, one.step),
                    known(one.epoch >= 0, one.epoch), known(readable, one.job),
                    known(readable, one.bytes),
                    one.state.ok() ? "sound" : std::string(one.state.message())});
  }
  std::string table;
  for (const Row& row : rows) {
    for (size_t column = 0; column < kColumns; ++column) {
      absl::StrAppend(&table, row[column]);
      if (column + 1 == kColumns) continue;
      size_t width = 0;
      for (const Row& other : rows) width = std::max(width, other[column].size());
      table.append(width + 2 - row[column].size(), ' ');
    }
    table.push_back('\n');
  }
  return table;
}

}  // namespace sherd
