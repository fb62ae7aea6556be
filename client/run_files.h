#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sherd {

// The directories of a run, what of them is this run's own, and the guard against a second run in
// the same place: the output directory itself is locked, so that nothing is left behind and the
// lock goes with the process.
class RunFiles {
 public:
  // Touches no file. Both are absolute; the logs lie below the output directory.
  RunFiles(std::string output_root, std::string log_directory);
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  // Makes the directories and locks the output directory until this object or the process ends.
  // kFailedPrecondition when another run has it; kInternal says which directory cannot be made, and
  // why.
  absl::Status Make();
  // Removes what was not there before this run: the logs, and then the directories that are empty.
  void Remove();

 private:
  absl::Status Lock();

  const std::string output_root_;
  const std::string log_directory_;
  // Removed in this order.
  std::vector<std::string> made_;
  int locked_ = -1;
};

}  // namespace sherd
