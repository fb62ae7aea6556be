#include "client/model_folder.h"

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/model_config.h"
#include "plan/model_folder.h"

namespace sherd {

absl::Status ReadModelFolder(JobFile& file) {
  const std::string& from = file.spec.model().from();
  if (from.empty()) return absl::OkStatus();
  const std::string path = absl::StrCat(from, "/", kModelConfigFile);
  const std::string where = absl::StrCat(OriginOf(file, "model.from"), ": model.from: ");
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMaxModelConfigBytes) + 1, '\0');
  if (!stream ||
      (!stream.read(text.data(), static_cast<std::streamsize>(text.size())) && !stream.eof())) {
    return absl::NotFoundError(
        absl::StrCat(where, path,
                     " cannot be read on this machine, where the model's shape is taken from; copy "
                     "that one file here and name its folder, as in --set model.from=DIR"));
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (static_cast<int64_t>(text.size()) > kMaxModelConfigBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, path, " is larger than the ", kMaxModelConfigBytes, " bytes that it may have"));
  }
  const absl::StatusOr<v1::ModelSpec> model = ParseModelConfig(text);
  if (!model.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(where, path, ": ", model.status().message()));
  }
  const v1::InvalidFields different = TakeShape(*model, *file.spec.mutable_model());
  if (different.fields().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(DescribeInvalidFields(different, file));
}

}  // namespace sherd
