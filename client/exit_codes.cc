#include "client/exit_codes.h"

namespace sherd {

ExitCode ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return ExitCode::kSuccess;
    case v1::JOB_STATE_FAILED:
      return ExitCode::kJobFailed;
    case v1::JOB_STATE_CANCELLED:
      return ExitCode::kCancelled;
    default:
      return ExitCode::kNotFinished;
  }
}

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kSuccess;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    default:
      return ExitCode::kOther;
  }
}

}  // namespace sherd
