#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sherd {

// A new file that several threads write at places of their own. Closed when destroyed. Errors name
// its path: kResourceExhausted (no space left), kPermissionDenied, … .
class SharedOutput {
 public:
  // kAlreadyExists when there is something of that name.
  static absl::StatusOr<SharedOutput> Create(const std::string& path);
  ~SharedOutput();
  SharedOutput(SharedOutput&& other) noexcept;

  // Thread-safe.
  absl::Status Write(int64_t offset, absl::Span<const std::byte> bytes) const;
  // Returns when all that was written is on stable storage.
  absl::Status Sync() const;

 private:
  SharedOutput(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
};

}  // namespace sherd
