#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sherd {

// "1 micro-batch", "3 micro-batches".
inline std::string Counted(int64_t count, absl::string_view one, absl::string_view many) {
  return absl::StrCat(count, " ", count == 1 ? one : many);
}

// Of a thing whose plural adds an s: "1 worker", "3 workers".
inline std::string Counted(int64_t count, absl::string_view thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

}  // namespace sherd
