#include "client/complain.h"

#include <iostream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/job_client.h"

namespace sherd {

ExitCode Complain(const absl::Status& error) {
  std::cerr << (error.message().empty() ? absl::StrCat("failed without a reason: ",
                                                       absl::StatusCodeToString(error.code()))
                                        : std::string(error.message()))
            << std::endl;
  return ExitCodeOf(error);
}

ExitCode ComplainAboutUse(const absl::Status& error) {
  Complain(error);
  return ExitCode::kUsage;
}

absl::Status AtTheirLines(const absl::Status& error, const JobFile& file) {
  const std::optional<v1::InvalidFields> invalid = InvalidFieldsOf(error);
  if (!invalid || invalid->fields().empty()) return error;
  return absl::Status(error.code(), DescribeInvalidFields(*invalid, file));
}

absl::Status CheckAddress(const std::string& coordinator) {
  if (coordinator.empty()) {
    return absl::InvalidArgumentError(
        "name the coordinator with --coordinator HOST:PORT or in SHERD_COORDINATOR");
  }
  const size_t colon = coordinator.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(coordinator.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator '", coordinator,
                                                   "' must be HOST:PORT, as in 127.0.0.1:7700"));
  }
  return absl::OkStatus();
}

}  // namespace sherd
