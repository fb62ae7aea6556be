#include "worker/train/lineage.h"

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/readable_file.h"
#include "worker/checkpoint/shard_files.h"

namespace sherd {
namespace {

constexpr int64_t kMaxLineageBytes = 4096;

// Of no meaning to who reads checkpoints, and removed when the next job starts there.
std::string FileOf(const std::string& root, absl::string_view job_id) {
  return absl::StrCat(root, "/.", job_id, ".lineage.partial");
}

}  // namespace

std::string NewLineage(absl::string_view job_id) {
  std::random_device random;
  return absl::StrFormat("%s-%08x%08x", job_id, random(), random());
}

absl::Status RememberLineage(FileSystem& files, const std::string& root, absl::string_view job_id,
                             absl::string_view lineage) {
  SHERD_RETURN_IF_ERROR(files.MakeDirectories(root));
  return WriteFile(files, FileOf(root, job_id), lineage);
}

std::string RememberedLineage(const std::string& root, absl::string_view job_id) {
  return ReadWhole(FileOf(root, job_id), kMaxLineageBytes).value_or("");
}

std::string RecallLineage(FileSystem& files, const std::string& root, absl::string_view job_id,
                          int64_t epoch) {
  std::string remembered = RememberedLineage(root, job_id);
  if (!remembered.empty()) return remembered;
  const absl::StatusOr<std::vector<std::string>> saved = StepDirectories(files, root);
  if (!saved.ok()) return "";
  for (const std::string& path : *saved) {
    const absl::StatusOr<Manifest> manifest = ReadManifest(path);
    if (!manifest.ok() || !manifest->info.training) continue;
    if (manifest->info.job_id != job_id || manifest->info.epoch >= epoch) continue;
    return manifest->info.training->lineage;
  }
  return "";
}

std::string ChooseLineage(FileSystem& files, const std::string& root,
                          const v1::Assignment& assignment,
                          const std::optional<RestoredCheckpoint>& restored) {
  if (restored && (restored->newest || assignment.has_restore())) {
    return restored->info.training->lineage;
  }
  std::string lineage;
  if (assignment.has_restore()) {
    lineage = RecallLineage(files, root, assignment.job_id(), assignment.epoch());
  }
  return lineage.empty() ? NewLineage(assignment.job_id()) : lineage;
}

void ForgetLineage(FileSystem& files, const std::string& root, absl::string_view job_id) {
  files.Remove(FileOf(root, job_id)).IgnoreError();
}

}  // namespace sherd
