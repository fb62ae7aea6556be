#include "coordinator/store/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

std::string ReadHolder(int descriptor) {
  char text[32] = {};
  const ssize_t size = pread(descriptor, text, sizeof(text) - 1, 0);
  return size > 0 ? std::string(absl::StripAsciiWhitespace(text)) : "unknown";
}

}  // namespace

absl::StatusOr<std::unique_ptr<LockFile>> LockFile::Acquire(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot make the lock file ", path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<LockFile> lock(new LockFile(descriptor));
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another coordinator (process ", ReadHolder(descriptor), ") uses this event log and holds ",
        path, "; stop it, or start this one with another --data-dir"));
  }
  const std::string holder = absl::StrCat(getpid(), "\n");
  if (ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write the lock file ", path, ": ", std::strerror(errno)));
  }
  return lock;
}

LockFile::~LockFile() { close(descriptor_); }

}  // namespace sherd
