#include "client/run_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/local_cluster.h"

namespace sherd {

namespace fs = std::filesystem;

RunFiles::RunFiles(std::string output_root, std::string log_directory)
    : output_root_(std::move(output_root)), log_directory_(std::move(log_directory)) {}

RunFiles::~RunFiles() {
  if (locked_ >= 0) close(locked_);
}

absl::Status RunFiles::Make() {
  std::error_code error;
  std::vector<std::string> paths;
  for (const std::string& log : LogNames()) paths.push_back(absl::StrCat(log_directory_, "/", log));
  for (fs::path path = log_directory_; path.has_relative_path(); path = path.parent_path()) {
    paths.push_back(path.string());
  }
  for (std::string& path : paths) {
    if (!fs::exists(path, error)) made_.push_back(std::move(path));
  }
  fs::create_directories(log_directory_, error);
  if (!error) return Lock();
  Remove();
  return absl::InternalError(
      absl::StrCat("cannot make the directory ", log_directory_, ": ", error.message()));
}

absl::Status RunFiles::Lock() {
  locked_ = open(output_root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (locked_ < 0) {
    return absl::InternalError(
        absl::StrCat("cannot open the directory ", output_root_, ": ", std::strerror(errno)));
  }
  // Some network file systems cannot lock a directory: there a run goes on without the guard.
  bool taken = flock(locked_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // A run that was refused may have removed the directory between its making and its opening.
  struct stat opened = {};
  struct stat present = {};
  taken = taken || fstat(locked_, &opened) != 0 || stat(output_root_.c_str(), &present) != 0 ||
          opened.st_ino != present.st_ino;
  if (!taken) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("another sherd run writes to ", output_root_,
                   "; wait until it has ended, or give this one another directory with --out"));
}

void RunFiles::Remove() {
  std::error_code error;
  // Of a directory that holds something else meanwhile this fails, as it should.
  for (const std::string& path : made_) fs::remove(path, error);
}

}  // namespace sherd
