#include "worker/train/inspect_job.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "plan/job_spec.h"
#include "worker/checkpoint/find.h"
#include "worker/checkpoint/save.h"
#include "worker/data/inspect.h"
#include "worker/data/roots.h"
#include "worker/dataset/inspect_texts.h"
#include "worker/pretrained/pretrained_folder.h"

namespace sherd {
namespace {

// Of a sentence: what is named in it comes from files and may be of any length.
constexpr size_t kMost = 4000;

// That there is something to go on from, as far as can be seen without reading all of it.
absl::Status CheckResume(FileSystem& files, const std::string& root, const std::string& resume,
                         const TrainerOptions& options) {
  std::string from = resume;
  if (!resume.empty() && resume != "none" && resume != "latest") {
    SHERD_ASSIGN_OR_RETURN(from, ResolveOutputDirectory(options.output_root, resume));
  }
  const absl::Status found = ResolveResume(files, root, from).status();
  const std::string nearest = absl::IsNotFound(found) ? Nearest(resume, {"latest", "none"}) : "";
  if (nearest.empty()) return found;
  return absl::NotFoundError(absl::StrCat(found.message(), "; did you mean '", nearest, "'?"));
}

}  // namespace

absl::StatusOr<v1::DataInspection> InspectJob(const v1::InspectData& request,
                                              const TrainerOptions& options) {
  v1::DataInspection found;
  int64_t seq_len = request.seq_len();
  int64_t vocab = request.vocab();
  if (!request.model_from().empty()) {
    const absl::StatusOr<PretrainedFolder> folder =
        PretrainedFolder::Open(options.data_root, request.model_from());
    if (!folder.ok()) {
      return absl::Status(folder.status().code(),
                          absl::StrCat("model.from: ", folder.status().message().substr(0, kMost)));
    }
    *found.mutable_model() = folder->model();
    if (seq_len == 0) seq_len = folder->model().context();
    if (vocab == 0) vocab = folder->model().vocab();
  }
  SHERD_RETURN_IF_ERROR(
      InspectJobFiles(request.data(), request.checkpoint(), seq_len, vocab, options));
  return found;
}

absl::Status InspectJobFiles(const v1::DataSpec& data, const v1::CheckpointSpec& checkpoint,
                             int64_t seq_len, int64_t vocab, const TrainerOptions& options) {
  SHERD_RETURN_IF_ERROR(
      InspectFiles(data, checkpoint, seq_len, vocab, options.data_root, options.output_root));
  SHERD_RETURN_IF_ERROR(InspectTexts(data, seq_len, vocab, options.data_root));
  if (checkpoint.dir().empty()) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(const std::string directory,
                         ResolveOutputDirectory(options.output_root, checkpoint.dir()));
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  const absl::Status usable = CheckRoot(*files, directory);
  if (!usable.ok()) {
    return absl::Status(usable.code(), absl::StrCat("checkpoint.dir: ", usable.message()));
  }
  const absl::Status resumable = CheckResume(*files, directory, checkpoint.resume(), options);
  return absl::Status(resumable.code(), absl::StrCat("checkpoint.resume: ", resumable.message()));
}

}  // namespace sherd
