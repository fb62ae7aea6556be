#include "common/log.h"

#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sherd {
namespace {

std::string& Program() {
  static std::string* const program = new std::string("sherd");
  return *program;
}

constexpr char Letter(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return 'I';
    case Severity::kWarning:
      return 'W';
    case Severity::kError:
      return 'E';
  }
  return '?';
}

}  // namespace

void SetLogProgram(absl::string_view program) { Program() = std::string(program); }

void Log(Severity severity, absl::string_view message) {
  const char letter = Letter(severity);
  const std::string line =
      absl::StrCat(absl::string_view(&letter, 1), " ",
                   absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                   " ", Program(), " ", message, "\n");
  // A log line that cannot be written has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sherd
