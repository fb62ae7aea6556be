#include "worker/checkpoint/find.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/readable_file.h"
#include "worker/checkpoint/save.h"

namespace sherd {
namespace {

constexpr int64_t kMaxLatestBytes = 4096;
// Below what `sherd run` puts out, the job's checkpoint.dir.
constexpr char kRunWeights[] = "weights";

bool HasManifest(const std::string& directory) {
  return ReadableFile::Open(absl::StrCat(directory, "/", kManifestFile)).ok();
}

bool IsDirectory(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// The lineage of the checkpoint that `latest` names; "" when it cannot be told.
std::string LatestLineage(const std::string& root) {
  const absl::StatusOr<std::string> text =
      ReadWhole(absl::StrCat(root, "/", kLatestFile), kMaxLatestBytes);
  if (!text.ok()) return "";
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  return lines.size() == 3 && ParseStepName(lines[0]) ? lines[1] : "";
}

// Whether a damaged checkpoint may be of `lineage`: its manifest says so, or, when that cannot be
// read, the lineage is that which was published last.
bool MayBeOf(absl::string_view lineage, const std::string& path, const std::string& latest) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(path);
  if (!manifest.ok() || !manifest->info.training) return lineage == latest;
  return manifest->info.training->lineage == lineage;
}

// ReadSoundManifest, and that it is what the directory's name says.
absl::StatusOr<Manifest> ReadStep(const std::string& path) {
  SHERD_ASSIGN_OR_RETURN(Manifest manifest, ReadSoundManifest(path));
  if (!manifest.info.training || path != StepDirectory(path.substr(0, path.rfind('/')),
                                                       manifest.info.step, manifest.info.epoch)) {
    return absl::DataLossError(
        absl::StrCat(path, " holds another checkpoint than its name says: ", KindOf(manifest.info),
                     " of step ", manifest.info.step, ", epoch ", manifest.info.epoch));
  }
  return manifest;
}

absl::Status AllDamaged(const std::string& directory,
                        const std::vector<SkippedCheckpoint>& skipped) {
  return absl::DataLossError(
      absl::StrCat("every checkpoint below ", directory, " is damaged: ",
                   absl::StrJoin(skipped, "; ", [](std::string* out, const SkippedCheckpoint& one) {
                     absl::StrAppend(out, one.why.message());
                   })));
}

absl::Status WeightsAlone(const std::string& directory) {
  return absl::FailedPreconditionError(
      absl::StrCat(directory,
                   " holds weights alone, without the optimizer's state; training can go on from a "
                   "directory step-…-epoch-… only, as checkpoint.every leaves them"));
}

absl::Status DidYouMean(const absl::Status& error, const std::string& below) {
  return absl::NotFoundError(absl::StrCat(error.message(), "; did you mean ", below, "?"));
}

absl::StatusOr<CheckpointSearch> ResolvePath(FileSystem& files, const std::string& path) {
  if (HasManifest(path)) {
    SHERD_ASSIGN_OR_RETURN(Manifest manifest, ReadSoundManifest(path));
    if (!manifest.info.training) return WeightsAlone(path);
    return CheckpointSearch{FoundCheckpoint{path, std::move(manifest)}, {}};
  }
  SHERD_ASSIGN_OR_RETURN(CheckpointSearch search, FindNewestSound(files, path));
  if (search.found) return search;
  if (!search.skipped.empty()) return AllDamaged(path, search.skipped);
  if (HasManifest(FinalDirectory(path))) return WeightsAlone(FinalDirectory(path));
  struct stat ignored;
  if (stat(path.c_str(), &ignored) != 0) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist on the worker's machine"));
  }
  const absl::Status none =
      absl::NotFoundError(absl::StrCat(path, " holds no complete checkpoint"));
  // As in what `sherd run` puts out. A hint must not lead into the next refusal.
  const std::string below = absl::StrCat(path, "/", kRunWeights);
  if (!IsDirectory(below)) return none;
  const absl::Status there = ResolvePath(files, below).status();
  if (there.ok()) return DidYouMean(none, below);
  return absl::IsNotFound(there) ? none : there;
}

}  // namespace

std::optional<StepName> ParseStepName(absl::string_view name) {
  StepName parsed;
  absl::string_view rest = name;
  const size_t middle = name.find("-epoch-");
  if (!absl::ConsumePrefix(&rest, "step-") || middle == absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(5, middle - 5), &parsed.step) ||
      !absl::SimpleAtoi(name.substr(middle + 7), &parsed.epoch) || parsed.step < 0 ||
      parsed.epoch < 0 || StepDirectory("", parsed.step, parsed.epoch).substr(1) != name) {
    return std::nullopt;
  }
  return parsed;
}

std::string FormatLatest(absl::string_view name, absl::string_view lineage) {
  return absl::StrCat(name, "\n", lineage, "\n");
}

absl::StatusOr<std::vector<std::string>> StepDirectories(FileSystem& files,
                                                         const std::string& root) {
  const absl::StatusOr<std::vector<std::string>> names = files.List(root);
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  SHERD_RETURN_IF_ERROR(names.status());
  std::vector<StepName> steps;
  for (const std::string& name : *names) {
    if (const std::optional<StepName> step = ParseStepName(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), [](const StepName& a, const StepName& b) {
    return std::tie(a.step, a.epoch) > std::tie(b.step, b.epoch);
  });
  std::vector<std::string> paths;
  for (const StepName& step : steps) paths.push_back(StepDirectory(root, step.step, step.epoch));
  return paths;
}

absl::StatusOr<Manifest> ReadSoundManifest(const std::string& directory) {
  SHERD_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(directory));
  for (const ShardFileInfo& shard : manifest.shards) {
    SHERD_RETURN_IF_ERROR(
        ReadableFile::OpenSized(absl::StrCat(directory, "/", shard.file), shard.bytes).status());
  }
  return manifest;
}

absl::StatusOr<CheckpointSearch> FindNewestSound(FileSystem& files, const std::string& root,
                                                 absl::string_view lineage,
                                                 const std::vector<std::string>& excluded) {
  SHERD_ASSIGN_OR_RETURN(const std::vector<std::string> newest_first, StepDirectories(files, root));
  const std::string latest = LatestLineage(root);
  const std::string preferred = lineage.empty() ? latest : std::string(lineage);
  CheckpointSearch search;
  for (const std::string& path : newest_first) {
    if (std::find(excluded.begin(), excluded.end(), path) != excluded.end()) continue;
    absl::StatusOr<Manifest> manifest = ReadStep(path);
    if (!manifest.ok()) {
      const bool counts = lineage.empty() || MayBeOf(lineage, path, latest);
      if (counts) search.skipped.push_back({path, manifest.status()});
      continue;
    }
    const bool is_preferred = preferred.empty() || manifest->info.training->lineage == preferred;
    if (is_preferred) {
      search.found = FoundCheckpoint{path, *std::move(manifest)};
      return search;
    }
    // The newest of all, in case that there is none of the lineage.
    if (lineage.empty() && !search.found) {
      search.found = FoundCheckpoint{path, *std::move(manifest)};
    }
  }
  return search;
}

absl::StatusOr<CheckpointSearch> ResolveResume(FileSystem& files, const std::string& root,
                                               const std::string& resume) {
  if (resume.empty() || resume == "none") return CheckpointSearch();
  if (resume != "latest") return ResolvePath(files, resume);
  SHERD_ASSIGN_OR_RETURN(CheckpointSearch search, FindNewestSound(files, root));
  // To start anew without a word would lose what was trained (F42).
  if (!search.found && !search.skipped.empty()) return AllDamaged(root, search.skipped);
  return search;
}

absl::Status HintAtWeights(FileSystem& files, const std::string& directory,
                           const absl::Status& error) {
  const std::string below = absl::StrCat(directory, "/", kRunWeights);
  if (!absl::IsNotFound(error) || HasManifest(WeightsDirectory(files, directory)) ||
      !HasManifest(WeightsDirectory(files, below))) {
    return error;
  }
  return DidYouMean(error, below);
}

std::string WeightsDirectory(FileSystem& files, const std::string& directory) {
  if (HasManifest(FinalDirectory(directory))) return FinalDirectory(directory);
  if (HasManifest(directory)) return directory;
  const absl::StatusOr<CheckpointSearch> search = FindNewestSound(files, directory);
  return search.ok() && search->found ? search->found->path : directory;
}

}  // namespace sherd
