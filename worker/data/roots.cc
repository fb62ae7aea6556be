#include "worker/data/roots.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> RealPath(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return absl::ErrnoToStatus(errno, path);
  return std::string(real.get());
}

absl::StatusOr<std::string> RealRoot(const std::string& root) {
  absl::StatusOr<std::string> real = RealPath(root);
  if (!real.ok()) {
    return absl::NotFoundError(absl::StrCat("the root directory ", real.status().message(),
                                            "; make it or start the worker with another root"));
  }
  return real;
}

bool IsBelow(const std::string& real_root, const std::string& real_path) {
  if (real_root == "/" || real_path == real_root) return true;
  return real_path.compare(0, real_root.size(), real_root) == 0 &&
         real_path[real_root.size()] == '/';
}

std::string Joined(const std::string& root, const std::string& path) {
  return root.empty() ? path : (fs::path(root) / path).string();
}

absl::Status Outside(const std::string& path, const std::string& root) {
  return absl::PermissionDeniedError(
      absl::StrCat(path, " lies outside of ", root,
                   ", the directory that workers may use; name a path below it"));
}

// Judges what was opened, so nobody can swap a link in between.
absl::Status CheckBelow(const std::string& root, const std::string& path, int descriptor) {
  if (root.empty()) return absl::OkStatus();
  SHERD_ASSIGN_OR_RETURN(const std::string real_root, RealRoot(root));
  const absl::StatusOr<std::string> real = RealPath(absl::StrCat("/proc/self/fd/", descriptor));
  if (!real.ok() || !IsBelow(real_root, *real)) return Outside(path, root);
  return absl::OkStatus();
}

absl::Status OpenError(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist on the worker's machine"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat(path, " cannot be read"));
}

// Absolute, without ".." and without a slash at the end.
fs::path Normalized(const std::string& path) {
  const fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// What exists of a path, and the rest.
struct SplitPath {
  fs::path existing;
  fs::path missing;
};

SplitPath SplitAtExisting(const fs::path& path) {
  SplitPath split{path, {}};
  struct stat ignored;
  while (!split.existing.empty() && lstat(split.existing.c_str(), &ignored) != 0) {
    split.missing = split.missing.empty() ? split.existing.filename()
                                          : split.existing.filename() / split.missing;
    const fs::path parent = split.existing.parent_path();
    if (parent == split.existing) break;
    split.existing = parent;
  }
  return split;
}

absl::Status CheckWritable(const std::string& path, const std::string& existing) {
  struct stat status;
  if (stat(existing.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " needs a directory where ", existing, " is a file"));
  }
  if (faccessat(AT_FDCWD, existing.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat(path, ": the worker may not write to ", existing));
  }
  return absl::OkStatus();
}

}  // namespace

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : name_(std::move(other.name_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

bool InputFile::Reaches(int64_t bytes) const {
  struct stat status = {};
  return fstat(descriptor_, &status) == 0 && status.st_size >= bytes;
}

absl::Status InputFile::Read(int64_t offset, int64_t bytes, void* out) const {
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat(name_, " cannot be read"));
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(name_, " ends at byte ", offset, " but had ", bytes_,
                                              " bytes when it was opened; leave data files as they "
                                              "are while a job runs"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::StatusOr<DirectoryNames> ListBelow(const std::string& root, const std::string& path) {
  const std::string joined = Joined(root, path.empty() ? "." : path);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(joined.c_str()), &closedir);
  DirectoryNames names;
  if (directory == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return names;
    return OpenError(path, errno);
  }
  SHERD_RETURN_IF_ERROR(CheckBelow(root, path, dirfd(directory.get())));
  while (const dirent* entry = readdir(directory.get())) {
    if (entry->d_name[0] == '.') continue;
    struct stat status = {};
    const bool known = fstatat(dirfd(directory.get()), entry->d_name, &status, 0) == 0;
    auto& kind = known && S_ISDIR(status.st_mode) ? names.directories : names.files;
    kind.emplace_back(entry->d_name);
  }
  return names;
}

absl::StatusOr<InputFile> OpenBelow(const std::string& root, const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("an empty path names no file");
  const std::string joined = Joined(root, path);
  // Without O_NONBLOCK a FIFO would block here for ever.
  const int descriptor = open(joined.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return OpenError(path, errno);
  struct stat status = {};
  const bool known = fstat(descriptor, &status) == 0;
  InputFile file(path, descriptor, status.st_size);
  if (!known) return OpenError(path, errno);
  SHERD_RETURN_IF_ERROR(CheckBelow(root, path, descriptor));
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, S_ISDIR(status.st_mode) ? " is a directory; list the files in it"
                                      : " is not a regular file; name a file of data"));
  }
  return file;
}

absl::StatusOr<std::string> ResolveOutputDirectory(const std::string& root,
                                                   const std::string& path) {
  if (path.empty()) return absl::InvalidArgumentError("an empty path names no directory");
  const SplitPath split = SplitAtExisting(Normalized(Joined(root, path)));
  const absl::StatusOr<std::string> existing = RealPath(split.existing.string());
  if (!existing.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " leads over ", split.existing.string(), ", a link to nowhere"));
  }
  if (!root.empty()) {
    SHERD_ASSIGN_OR_RETURN(const std::string real_root, RealRoot(root));
    // What is put together beside the root itself would lie outside of it, too.
    const bool is_root = *existing == real_root && split.missing.empty();
    if (is_root || !IsBelow(real_root, *existing)) return Outside(path, root);
  }
  SHERD_RETURN_IF_ERROR(CheckWritable(path, *existing));
  return split.missing.empty() ? *existing : (fs::path(*existing) / split.missing).string();
}

}  // namespace sherd
