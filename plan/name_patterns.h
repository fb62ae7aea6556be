#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace sherd {

// Whether `pattern`, in which "*" stands for any characters, also none and dots, is `name`.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Of `names`, those that the pattern is closest to matching, by the changes that it takes; at most
// `most` of them, in order.
std::vector<std::string> NearestToPattern(absl::string_view pattern,
                                          const std::vector<std::string>& names, size_t most);

}  // namespace sherd
