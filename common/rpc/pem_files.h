#pragma once

#include <string>

#include "absl/status/status.h"

namespace sherd {

// OK when the files can be read, `ca` and `certificate` hold certificates in PEM that are valid
// now, and `key` is the private key of the first one in `certificate`. Else kInvalidArgument with a
// sentence that names the file and what would be right, never what is in it.
absl::Status CheckPemFiles(const std::string& ca, const std::string& certificate,
                           const std::string& key);

}  // namespace sherd
