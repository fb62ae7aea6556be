#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/checkpoint/manifest.h"

namespace sherd {

// Reads every byte of a checkpoint's files and compares all checksums, of files and of pieces.
// kDataLoss and kNotFound name the file, and the tensor where it is known.
absl::Status VerifyFiles(const std::string& directory, const Manifest& manifest);

}  // namespace sherd
