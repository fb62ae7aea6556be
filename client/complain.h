#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/exit_codes.h"
#include "client/job_file.h"

namespace sherd {

// Says the error on stderr and returns its exit code.
ExitCode Complain(const absl::Status& error);
// The same for what the user handed in: kUsage whatever the code.
ExitCode ComplainAboutUse(const absl::Status& error);

// A coordinator's error about fields of the job, told with the lines of the job file.
absl::Status AtTheirLines(const absl::Status& error, const JobFile& file);

// kInvalidArgument, saying what to type, unless it is "HOST:PORT".
absl::Status CheckAddress(const std::string& coordinator);

}  // namespace sherd
