#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sherd {

// The directory of a run's logs, and what of it is this run's own.
class RunFiles {
 public:
  // Touches no file. `log_directory` is absolute.
  explicit RunFiles(std::string log_directory);

  // Makes the directory and those above it. kInternal says which cannot be made, and why.
  absl::Status Make();
  // Removes what was not there before this run: the logs, and then the directories that are empty.
  void Remove();

 private:
  const std::string log_directory_;
  // Removed in this order.
  std::vector<std::string> made_;
};

}  // namespace sherd
