#pragma once

#include "absl/strings/string_view.h"

namespace sherd {

enum class Severity { kInfo, kWarning, kError };

// Writes one line, "I 2026-01-31T12:00:00.000Z PROGRAM MESSAGE", to stderr with a single write.
// Thread-safe.
void Log(Severity severity, absl::string_view message);

// The PROGRAM of every later line: "coordinator", "worker cpu:0". Call once, before threads start.
void SetLogProgram(absl::string_view program);

}  // namespace sherd
