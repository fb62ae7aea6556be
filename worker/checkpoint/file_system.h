#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

// A file that is being written. Closed when destroyed.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Returns when all that was appended is on stable storage.
  virtual absl::Status Sync() = 0;
};

// What writing a checkpoint asks of the operating system; tests make each call fail or crash.
// Errors name the path: kResourceExhausted (no space left), kPermissionDenied, kNotFound, … .
// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // Like `mkdir -p`; the entries of what it makes are durable.
  virtual absl::Status MakeDirectories(const std::string& path) = 0;
  // Truncates a file that exists.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) = 0;
  // Names of the entries, without "." and "..", in no order.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  // Makes the entries of a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Gives the directory `from` the name `to` in one step; if `to` exists, each gets the other's
  // name.
  virtual absl::Status RenameOrExchange(const std::string& from, const std::string& to) = 0;
  // Gives a file the name `to` in one step, in place of a file of that name.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or a directory and all in it; OK when there is none.
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The real one.
std::unique_ptr<FileSystem> MakePosixFileSystem();

}  // namespace sherd
