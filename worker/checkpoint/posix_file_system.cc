#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/checkpoint/file_system.h"

namespace sherd {
namespace {

absl::Status Failed(const std::string& path, absl::string_view what, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " cannot be ", what, ": no space left on its file system"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat(path, " cannot be ", what));
}

class PosixOutputFile final : public OutputFile {
 public:
  PosixOutputFile(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  ~PosixOutputFile() override { close(descriptor_); }

  absl::Status Append(absl::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed(path_, "written", errno);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return fsync(descriptor_) == 0 ? absl::OkStatus() : Failed(path_, "written", errno);
  }

 private:
  const std::string path_;
  const int descriptor_;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::Status MakeDirectories(const std::string& path) override {
    const std::filesystem::path whole(path);
    std::filesystem::path parent;
    for (const std::filesystem::path& part : whole) {
      const std::filesystem::path next = parent / part;
      const int error = mkdir(next.c_str(), 0777) == 0 ? 0 : errno;
      if (error == 0) {
        SHERD_RETURN_IF_ERROR(SyncDirectory(parent.empty() ? "." : parent.string()));
      } else if (std::error_code ignored; !std::filesystem::is_directory(next, ignored)) {
        return Failed(path, "made", error);
      }
      parent = next;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) return Failed(path, "made", errno);
    return std::make_unique<PosixOutputFile>(path, descriptor);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return Failed(directory, "listed", error.value());
    return names;
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return Failed(path, "made durable", errno);
    const int result = fsync(descriptor);
    const int error = errno;
    close(descriptor);
    return result == 0 ? absl::OkStatus() : Failed(path, "made durable", error);
  }

  absl::Status RenameOrExchange(const std::string& from, const std::string& to) override {
    if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return absl::OkStatus();
    }
    if (errno == EEXIST &&
        renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
      return absl::OkStatus();
    }
    // Some network file systems know no flags of renameat2.
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return RenameInSteps(from, to);
    return Failed(to, "given its name", errno);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                 : Failed(to, "given its name", errno);
  }

  absl::Status Remove(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? Failed(path, "removed", error.value()) : absl::OkStatus();
  }

 private:
  // As RenameOrExchange, but a crash between two steps leaves the old directory under `aside`.
  absl::Status RenameInSteps(const std::string& from, const std::string& to) {
    const std::string aside = from + ".old";
    const bool exists = access(to.c_str(), F_OK) == 0;
    if (exists && rename(to.c_str(), aside.c_str()) != 0) return Failed(to, "moved aside", errno);
    if (rename(from.c_str(), to.c_str()) != 0) {
      absl::Status failed = Failed(to, "given its name", errno);
      if (exists) rename(aside.c_str(), to.c_str());
      return failed;
    }
    if (exists && rename(aside.c_str(), from.c_str()) != 0) {
      return Failed(aside, "moved", errno);
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem() { return std::make_unique<PosixFileSystem>(); }

}  // namespace sherd
