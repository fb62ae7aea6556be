#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sherd {

// A file that one process at a time can hold; let go when destroyed or when the process dies, so it
// is never stale.
class LockFile {
 public:
  // kFailedPrecondition, naming the holder's process id, when another process holds it;
  // kPermissionDenied when it cannot be made.
  static absl::StatusOr<std::unique_ptr<LockFile>> Acquire(const std::string& path);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  explicit LockFile(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

}  // namespace sherd
