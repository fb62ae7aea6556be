#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace sherd::simulation {

// What happened, as sentences with their time; nothing is kept unless somebody wants to read it.
class Trace {
 public:
  Trace(const Clock& clock, bool wanted) : clock_(clock), begin_(clock.Now()), wanted_(wanted) {}

  template <typename... Parts>
  void Say(const Parts&... parts) {
    if (!wanted_) return;
    lines_.push_back(
        absl::StrFormat("%10.3f ms  ", absl::ToDoubleMilliseconds(clock_.Now() - begin_)) +
        absl::StrCat(parts...));
  }
  bool wanted() const { return wanted_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const Clock& clock_;
  const absl::Time begin_;
  const bool wanted_;
  std::vector<std::string> lines_;
};

}  // namespace sherd::simulation
