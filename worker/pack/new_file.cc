#include "worker/pack/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {

absl::Status FileFailure(const std::string& path, absl::string_view what, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " cannot be ", what, ": no space left on its file system"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat(path, " cannot be ", what));
}

NewFile::NewFile(std::string path)
    : path_(std::move(path)),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {}

NewFile::~NewFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status NewFile::Append(absl::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileFailure(path_, "written", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status NewFile::Sync() const {
  return fsync(descriptor_) == 0 ? absl::OkStatus() : FileFailure(path_, "written", errno);
}

absl::Status SyncDirectory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int result = descriptor < 0 ? -1 : fsync(descriptor);
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  return result == 0 ? absl::OkStatus() : FileFailure(path, "made durable", error);
}

}  // namespace sherd
