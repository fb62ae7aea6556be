#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sherd {

// A file that is open for reading; its name is the one the user gave. Closed when destroyed.
class InputFile {
 public:
  InputFile(std::string name, int descriptor, int64_t bytes)
      : name_(std::move(name)), descriptor_(descriptor), bytes_(bytes) {}
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& name() const { return name_; }
  // When it was opened.
  int64_t bytes() const { return bytes_; }
  // The file's own; for mapping it.
  int descriptor() const { return descriptor_; }
  // Whether it has `bytes` bytes now.
  bool Reaches(int64_t bytes) const;
  // Reads `bytes` bytes at `offset`. kDataLoss, naming the file, when it has become shorter.
  // Thread-safe. A file that was unlinked meanwhile stays readable.
  absl::Status Read(int64_t offset, int64_t bytes, void* out) const;

 private:
  std::string name_;
  int descriptor_;
  int64_t bytes_;
};

// Opens the regular file `path`, which is relative to `root` or absolute, and which symbolic links
// may not lead out of `root`; "" for `root` allows any path. kNotFound, kPermissionDenied
// (unreadable or outside), kInvalidArgument (not a regular file): one sentence that names `path`.
absl::StatusOr<InputFile> OpenBelow(const std::string& root, const std::string& path);

// What a directory holds, in no order. Links are what they lead to.
struct DirectoryNames {
  std::vector<std::string> directories;
  std::vector<std::string> files;
};

// What is in the directory `path`, as above ("": in `root`), without names that start with a dot.
// Nothing when there is no such directory. kPermissionDenied when it lies outside of `root`.
absl::StatusOr<DirectoryNames> ListBelow(const std::string& root, const std::string& path);

// The absolute path of the directory `path`, as above, of which the tail need not exist yet.
// kPermissionDenied when it does not lie below `root` or could not be made or written there,
// kInvalidArgument when something that is no directory is in the way. Makes nothing.
absl::StatusOr<std::string> ResolveOutputDirectory(const std::string& root,
                                                   const std::string& path);

}  // namespace sherd
