#pragma once

#include "absl/status/status.h"
#include "sherd/v1/events.pb.h"

namespace sherd {

// What the `sherd` command answers; a contract with scripts.
enum class ExitCode : int {
  kSuccess = 0,
  kOther = 1,
  kUsage = 2,
  kJobFailed = 100,
  kNotFinished = 101,
  kNotFound = 102,
  kCancelled = 103,
};

// Of a job that was asked for or followed: its state decides.
ExitCode ExitCodeOf(v1::JobState state);
// Of a call that failed.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace sherd
