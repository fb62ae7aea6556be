#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "worker/data/mapped_file.h"

namespace sherd {

// What can be said of a file of JSON lines without reading all of it.
struct JsonlLook {
  // Of the lines that were read.
  int64_t tokens = 0;
  // Whether those are all.
  bool whole = false;
};

// Reads the lines of the first and of the last MiB. Errors of JsonlLines::Next; kOutOfRange for a
// byte that is not below `vocab`.
absl::StatusOr<JsonlLook> LookAtJsonl(const MappedFile& file, int64_t vocab);

}  // namespace sherd
