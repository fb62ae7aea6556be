#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sherd {

// A regular file that is open for reading. Closed when destroyed. Errors name its path.
class ReadableFile {
 public:
  // kNotFound, kPermissionDenied, kInvalidArgument (not a regular file).
  static absl::StatusOr<ReadableFile> Open(const std::string& path);
  // As Open; kDataLoss unless it has so many bytes.
  static absl::StatusOr<ReadableFile> OpenSized(const std::string& path, int64_t bytes);
  ~ReadableFile();
  ReadableFile(ReadableFile&& other) noexcept;

  const std::string& path() const { return path_; }
  // When it was opened.
  int64_t bytes() const { return bytes_; }
  // kDataLoss when it has become shorter. Thread-safe.
  absl::Status Read(int64_t offset, int64_t bytes, void* out) const;

 private:
  ReadableFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
  int64_t bytes_ = 0;
};

// All of a file that has no more than `most` bytes; kInvalidArgument for a longer one.
absl::StatusOr<std::string> ReadWhole(const std::string& path, int64_t most);

}  // namespace sherd
