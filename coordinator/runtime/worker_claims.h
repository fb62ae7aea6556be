#pragma once

#include <string>

#include "absl/status/status.h"
#include "sherd/v1/job_service.pb.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// What workers and their supervisors may say of themselves. Each refusal is kInvalidArgument and
// names the field.

// A worker's first message.
absl::Status CheckHello(const v1::Hello& hello);
// How a process ended: one of the ways a process can.
absl::Status CheckExit(const v1::ReportExitRequest& request);

// How a process ended, as the end of a sentence: "killed by signal 9 (SIGKILL)".
std::string ExitCause(const v1::ReportExitRequest& exit);

}  // namespace sherd
