#include "worker/checkpoint/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {

absl::StatusOr<ReadableFile> ReadableFile::Open(const std::string& path) {
  // Without O_NONBLOCK a FIFO would block here for ever.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return absl::NotFoundError(absl::StrCat(path, " is missing"));
  }
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, " cannot be read"));
  ReadableFile file(path, descriptor);
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  file.bytes_ = status.st_size;
  return file;
}

absl::StatusOr<ReadableFile> ReadableFile::OpenSized(const std::string& path, int64_t bytes) {
  SHERD_ASSIGN_OR_RETURN(ReadableFile file, Open(path));
  if (file.bytes() == bytes) return file;
  return absl::DataLossError(
      absl::StrCat(path, " is damaged: it has ", file.bytes(), " of ", bytes, " bytes"));
}

ReadableFile::~ReadableFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

absl::Status ReadableFile::Read(int64_t offset, int64_t bytes, void* out) const {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, " cannot be read"));
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset));
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(const std::string& path, int64_t most) {
  SHERD_ASSIGN_OR_RETURN(const ReadableFile file, ReadableFile::Open(path));
  if (file.bytes() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is larger than the ", most, " bytes that it may have"));
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  SHERD_RETURN_IF_ERROR(file.Read(0, file.bytes(), text.data()));
  return text;
}

}  // namespace sherd
