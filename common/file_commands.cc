#include "common/file_commands.h"

#include "absl/strings/str_replace.h"

namespace sherd {

int FileCommandCode(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kPermissionDenied:
      return kFileCommandUsage;
    default:
      return kFileCommandOther;
  }
}

std::string AsToldHere(absl::string_view sentence) {
  return absl::StrReplaceAll(sentence, {{" on the worker's machine", ""}});
}

}  // namespace sherd
