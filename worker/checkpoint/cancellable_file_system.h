#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/file_system.h"

namespace sherd {

// Another file system until Cancel; from then on every call, also on files that are open, fails
// with kCancelled before it changes anything. So whoever writes a checkpoint ends within the time
// of one call: of writing a chunk, or of a sync.
class CancellableFileSystem final : public FileSystem {
 public:
  // `files` must outlive this and the files that it makes; so must this the latter.
  explicit CancellableFileSystem(FileSystem& files) : files_(files) {}

  // From any thread.
  void Cancel() { cancelled_ = true; }
  // Counts a call.
  absl::Status Check() const;
  // Calls so far, of Append and Sync too. From any thread.
  int64_t operations() const { return operations_; }

  absl::Status MakeDirectories(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status RenameOrExchange(const std::string& from, const std::string& to) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;

 private:
  FileSystem& files_;
  std::atomic<bool> cancelled_ = false;
  mutable std::atomic<int64_t> operations_ = 0;
};

}  // namespace sherd
