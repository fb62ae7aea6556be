#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/token_file.h"

namespace sherd {

// The files that a list of paths and patterns below `root` ("": anywhere) names, in the list's
// order; what one pattern matches is in the order of the names' bytes, which is the same on every
// machine. In a pattern, * is any part of a name between two slashes, ? one byte and [a-z] one of
// some; none matches a dot at a name's start. A path that is there is no pattern, whatever it
// holds. Only files match, and for Megatron's format only .bin and .idx, each pair once.
//
// kNotFound, naming the pattern, when nothing matches; kInvalidArgument for more than 10,000 files;
// kPermissionDenied, as OpenBelow, when a pattern leads out of `root`.
absl::StatusOr<std::vector<std::string>> ExpandPatterns(const std::string& root,
                                                        const std::vector<std::string>& patterns,
                                                        TokenFormat format);

}  // namespace sherd
