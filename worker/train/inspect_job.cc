#include "worker/train/inspect_job.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/pretrained/pretrained_folder.h"

namespace sherd {
namespace {

// Of a sentence: what is named in it comes from files and may be of any length.
constexpr size_t kMost = 4000;

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

}  // namespace sherd
