#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sherd {

// A regular file that is open for reading. Closed when destroyed. Errors name its path.
class SourceFile {
 public:
  // kNotFound, kPermissionDenied, kInvalidArgument (not a regular file). A `path` that is relative
  // starts at `root`, and none leads out of it, also not over symbolic links; "" for `root` allows
  // any.
  static absl::StatusOr<SourceFile> Open(const std::string& path, const std::string& root = "");
  ~SourceFile();
  SourceFile(SourceFile&& other) noexcept;
  SourceFile& operator=(SourceFile&&) = delete;

  const std::string& path() const { return path_; }
  // When it was opened.
  int64_t bytes() const { return bytes_; }
  int64_t modified_nanoseconds() const { return modified_nanoseconds_; }
  // Bytes [begin, end), which must lie within [0, bytes()). kDataLoss when it has become shorter.
  // Thread-safe.
  absl::StatusOr<std::string> Read(int64_t begin, int64_t end) const;

 private:
  SourceFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
  int64_t bytes_ = 0;
  int64_t modified_nanoseconds_ = 0;
};

}  // namespace sherd
