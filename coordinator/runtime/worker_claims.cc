#include "coordinator/runtime/worker_claims.h"

#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr size_t kLongestText = 256;
constexpr size_t kLongestFingerprint = 1024;
constexpr size_t kLongestPath = 4096;
constexpr size_t kMarkRoom = 64;
constexpr int kHighestSignal = 64;

absl::Status CheckText(absl::string_view field, const std::string& text, size_t longest) {
  if (text.size() > longest) {
    return absl::InvalidArgumentError(
        absl::StrCat("Hello.", field, " may have ", longest, " bytes, it has ", text.size()));
  }
  // What is printable stays as it is.
  if (PrintableText(text, longest + kMarkRoom) != text) {
    return absl::InvalidArgumentError(
        absl::StrCat("Hello.", field, " holds a control character; use printable text"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHello(const v1::Hello& hello) {
  if (hello.worker_id().empty()) {
    return absl::InvalidArgumentError("Hello.worker_id must name the worker, it is empty");
  }
  SHERD_RETURN_IF_ERROR(CheckText("worker_id", hello.worker_id(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("device", hello.device(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("host", hello.host(), kLongestText));
  SHERD_RETURN_IF_ERROR(
      CheckText("shared_memory_domain", hello.shared_memory_domain(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("data_address", hello.data_address(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("network_address", hello.network_address(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("gpu.id", hello.gpu().id(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("gpu.address", hello.gpu().address(), kLongestText));
  SHERD_RETURN_IF_ERROR(CheckText("job_id", hello.job_id(), kLongestText));
  SHERD_RETURN_IF_ERROR(
      CheckText("numerics_fingerprint", hello.numerics_fingerprint(), kLongestFingerprint));
  SHERD_RETURN_IF_ERROR(CheckText("output_root", hello.output_root(), kLongestPath));
  if (hello.incarnation() == 0) {
    return absl::InvalidArgumentError("Hello.incarnation must be drawn at random, not 0");
  }
  return absl::OkStatus();
}

absl::Status CheckExit(const v1::ReportExitRequest& request) {
  if (request.signal() >= 0 && request.signal() <= kHighestSignal) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ReportExitRequest.signal ", request.signal(),
                                                 " is no signal; it must be 0 to ",
                                                 kHighestSignal));
}

std::string ExitCause(const v1::ReportExitRequest& exit) {
  if (exit.signal() == 0) return absl::StrCat("its process exited with code ", exit.exit_code());
  const char* name = sigabbrev_np(exit.signal());
  return absl::StrCat("killed by signal ", exit.signal(),
                      name == nullptr ? "" : absl::StrCat(" (SIG", name, ")"));
}

}  // namespace sherd
