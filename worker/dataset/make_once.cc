#include "worker/dataset/make_once.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "worker/pack/new_file.h"

namespace sherd {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// When a file of pieces was last added to.
int64_t SignOfLife(const std::string& path) {
  struct stat status = {};
  if (stat(absl::StrCat(path, ".pieces").c_str(), &status) != 0) return 0;
  return status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
}

enum class Turn {
  kMade,  // the file is there
  kOurs,  // the directory is locked
  kNone,  // it cannot be locked
};

absl::StatusOr<Turn> AwaitTurn(int directory, const std::string& path,
                               const std::function<bool()>& stopped, absl::Duration patience) {
  int64_t sign = SignOfLife(path);
  absl::Time since = absl::Now();
  while (true) {
    if (flock(directory, LOCK_EX | LOCK_NB) == 0) return Exists(path) ? Turn::kMade : Turn::kOurs;
    if (errno != EWOULDBLOCK) return Turn::kNone;
    if (Exists(path)) return Turn::kMade;
    if (stopped != nullptr && stopped()) return absl::AbortedError("stopped");
    if (const int64_t now = SignOfLife(path); now != sign) {
      sign = now;
      since = absl::Now();
    }
    if (absl::Now() - since > patience) return Turn::kNone;
    absl::SleepFor(kLookAgain);
  }
}

}  // namespace

absl::StatusOr<std::string> MakeOnce(const std::string& directory, const std::string& name,
                                     const std::function<bool()>& stopped,
                                     absl::FunctionRef<absl::Status(const std::string&)> make,
                                     absl::Duration patience) {
  std::string path = absl::StrCat(directory, "/", name);
  if (Exists(path)) return path;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileFailure(directory, "made", error.value());
  // The directory itself is locked: no file is left behind, and the lock goes with its process.
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileFailure(directory, "opened", errno);
  const absl::Cleanup close_it = [descriptor] { close(descriptor); };
  SHERD_ASSIGN_OR_RETURN(const Turn turn, AwaitTurn(descriptor, path, stopped, patience));
  if (turn == Turn::kMade) return path;
  if (turn == Turn::kOurs) {
    absl::Status made = make(path);
    if (!made.ok() && !Exists(path)) return made;
    return path;
  }
  const std::string own = absl::StrCat(directory, "/.", name, ".", getpid(), ".",
                                       absl::Hex(absl::GetCurrentTimeNanos()));
  SHERD_RETURN_IF_ERROR(make(own));
  if (std::rename(own.c_str(), path.c_str()) == 0) return path;
  return FileFailure(path, "given its name", errno);
}

}  // namespace sherd
