#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sherd {

// A file that is written front to back; replaces one of its name. Closed when destroyed. Errors
// name it: kResourceExhausted when no space is left.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;

  absl::Status Append(absl::string_view bytes) const;
  // Returns when all of it is on stable storage.
  absl::Status Sync() const;

 private:
  const std::string path_;
  const int descriptor_;
};

// Puts the names in a directory on stable storage.
absl::Status SyncDirectory(const std::string& path);

// What `error` (errno) means when `path` cannot be `what`, as in "written".
absl::Status FileFailure(const std::string& path, absl::string_view what, int error);

}  // namespace sherd
