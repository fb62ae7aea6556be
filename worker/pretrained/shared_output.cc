#include "worker/pretrained/shared_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

absl::Status Failed(const std::string& path, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " cannot be written: no space left on its file system"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat(path, " cannot be written"));
}

}  // namespace

absl::StatusOr<SharedOutput> SharedOutput::Create(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed(path, errno);
  return SharedOutput(path, descriptor);
}

SharedOutput::~SharedOutput() {
  if (descriptor_ >= 0) close(descriptor_);
}

SharedOutput::SharedOutput(SharedOutput&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

absl::Status SharedOutput::Write(int64_t offset, absl::Span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path_, errno);
    offset += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SharedOutput::Sync() const {
  return fsync(descriptor_) == 0 ? absl::OkStatus() : Failed(path_, errno);
}

}  // namespace sherd
