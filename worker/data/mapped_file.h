#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/roots.h"

namespace sherd {

// A file that is mapped into memory: opening it reads nothing, and processes that read the same
// file share what they have read. Unmapped when destroyed.
class MappedFile {
 public:
  // Errors of OpenBelow.
  static absl::StatusOr<MappedFile> Open(const std::string& root, const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  // As the user spelt it.
  const std::string& name() const { return file_.name(); }
  // When it was opened.
  int64_t bytes() const { return file_.bytes(); }
  // Copies `bytes` bytes at `offset`, which must lie within the file as it was opened. kDataLoss,
  // naming the file, when it has become shorter. Thread-safe.
  absl::Status Read(int64_t offset, int64_t bytes, void* out) const;

 private:
  explicit MappedFile(InputFile file);

  InputFile file_;
  const char* data_ = nullptr;  // null where the file system maps nothing: then it is read
};

}  // namespace sherd
