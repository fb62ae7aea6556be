#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// Collects what is wrong with a specification, for ValidateJobSpec. The Check functions return
// whether their rule holds; one that does not is added with the nearest valid value.
class SpecRules {
 public:
  void Add(absl::string_view field, absl::string_view description);
  bool CheckRange(absl::string_view field, int64_t value, int64_t least, int64_t most);
  // Of a size that has no default: 0 is "not given".
  bool CheckGiven(absl::string_view field, int64_t value, int64_t most);
  // `rule` ends the sentence "it must be …"; a value that is not finite never holds.
  bool CheckReal(absl::string_view field, double value, bool holds, absl::string_view rule);

  // Of what was added so far.
  int count() const { return violations_.fields_size(); }

  v1::InvalidFields Take() && { return std::move(violations_); }

 private:
  v1::InvalidFields violations_;
};

// Of paths: the longest one, and what none may hold.
inline constexpr size_t kMaxPathLength = 4096;
bool HasControl(absl::string_view text);

// "; the nearest is 4" or "; the nearest are 8 and 12".
std::string NearestText(const std::vector<int64_t>& values);
// "; the nearest that does is 4" or "; the nearest that do are 8 and 12"; "" for none.
std::string NearestThatDoText(const std::vector<int64_t>& values);
// The positive multiples of `of` around `value`, which is none, that are at most `most`.
std::vector<int64_t> NearestMultiples(int64_t of, int64_t value, int64_t most);

}  // namespace sherd
