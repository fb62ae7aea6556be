#include "worker/pack/source_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/roots.h"

namespace sherd {

namespace {

absl::StatusOr<int> OpenDescriptor(const std::string& path, const std::string& root) {
  if (root.empty()) {
    // Without O_NONBLOCK a FIFO would block here for ever.
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0) return descriptor;
  } else {
    SHERD_ASSIGN_OR_RETURN(const InputFile file, OpenBelow(root, path));
    const int descriptor = fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
    if (descriptor >= 0) return descriptor;
  }
  return absl::ErrnoToStatus(errno, absl::StrCat(path, " cannot be read"));
}

}  // namespace

absl::StatusOr<SourceFile> SourceFile::Open(const std::string& path, const std::string& root) {
  SHERD_ASSIGN_OR_RETURN(const int descriptor, OpenDescriptor(path, root));
  SourceFile file(path, descriptor);
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  file.bytes_ = status.st_size;
  file.modified_nanoseconds_ = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  return file;
}

SourceFile::~SourceFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

SourceFile::SourceFile(SourceFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      modified_nanoseconds_(other.modified_nanoseconds_) {}

absl::StatusOr<std::string> SourceFile::Read(int64_t begin, int64_t end) const {
  std::string text(static_cast<size_t>(end - begin), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = pread(descriptor_, text.data() + done, text.size() - done,
                              begin + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, " cannot be read"));
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " has become shorter: it ends at byte ",
                                              begin + static_cast<int64_t>(done)));
    }
    done += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace sherd
