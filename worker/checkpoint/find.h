#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/checkpoint/file_system.h"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// What "step-00000100-epoch-3" says; nothing for another name.
struct StepName {
  int64_t step = 0;
  int64_t epoch = 0;
};
std::optional<StepName> ParseStepName(absl::string_view name);

// The file that names the checkpoint that was published last, in two lines: its directory's name,
// and its lineage.
inline constexpr char kLatestFile[] = "latest";
std::string FormatLatest(absl::string_view name, absl::string_view lineage);

// The paths of the step directories below `root`, sound or not, newest first. None when it is not
// there.
absl::StatusOr<std::vector<std::string>> StepDirectories(FileSystem& files,
                                                         const std::string& root);

struct FoundCheckpoint {
  std::string path;
  Manifest manifest;
};
struct SkippedCheckpoint {
  std::string path;
  absl::Status why;
};
struct CheckpointSearch {
  std::optional<FoundCheckpoint> found;
  // Damaged ones that were passed over on the way; newest first.
  std::vector<SkippedCheckpoint> skipped;
};

// A manifest whose files are all there in their sizes: as much as can be known without reading
// everything. kNotFound, kInvalidArgument, kDataLoss.
absl::StatusOr<Manifest> ReadSoundManifest(const std::string& directory);

// The newest checkpoint below `root` (save.h) by step, then by epoch, that is sound as far as
// ReadSoundManifest sees; its checksums are verified when it is loaded. When that fails: search
// again with its path in `excluded`. Of `lineage` alone, if one is given: what another history of
// training left is then passed over in silence, also what is damaged so that nobody can tell whose
// it is, unless `latest` says that this lineage was published last. Else first among those of the
// lineage that `latest` names, then among all. A `root` that is not there has none. Errors are
// those of listing `root`.
absl::StatusOr<CheckpointSearch> FindNewestSound(FileSystem& files, const std::string& root,
                                                 absl::string_view lineage = "",
                                                 const std::vector<std::string>& excluded = {});

// What checkpoint.resume names: "none" or "" nothing; "latest" as FindNewestSound in `root`, where
// there may be none; else the path of a checkpoint, or of a directory with checkpoints below it.
// Errors: kNotFound for a path that is not there or without one; kDataLoss when all that there are are damaged, naming
// each; kFailedPrecondition for one that holds weights alone (F49).
absl::StatusOr<CheckpointSearch> ResolveResume(FileSystem& files, const std::string& root,
                                               const std::string& resume);

// The directory with the weights that a user means by `directory`: itself, the final ones below it,
// or the newest checkpoint below it. `directory` where there are none.
std::string WeightsDirectory(FileSystem& files, const std::string& directory);

// `error`, with "; did you mean DIRECTORY/weights?" behind it when that is kNotFound because the
// checkpoint lies there, as in what `sherd run` puts out.
absl::Status HintAtWeights(FileSystem& files, const std::string& directory,
                           const absl::Status& error);

}  // namespace sherd
