#include "client/janitor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sherd {
namespace {

// Positive: a group to take care of; negative: one to forget.
using Message = pid_t;

// A killed process may write for a moment longer.
void RemoveDirectory(const std::string& directory) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::error_code error;
    std::filesystem::remove_all(directory, error);
    if (!std::filesystem::exists(directory, error)) return;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

[[noreturn]] void Serve(int socket, const std::string& directory) {
  // Out of reach of the terminal and of whoever kills the parent's group.
  setsid();
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
  // The parent's output must not stay open for its readers.
  const int null = open("/dev/null", O_RDWR);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, standard);
  std::set<pid_t> groups;
  Message message = 0;
  while (true) {
    const ssize_t got = read(socket, &message, sizeof(message));
    if (got < 0 && errno == EINTR) continue;
    // The end of the parent closes its end of the socket.
    if (got != sizeof(message)) break;
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  RemoveDirectory(directory);
  _exit(0);
}

}  // namespace

absl::StatusOr<Janitor> Janitor::Start() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string directory = (error ? std::filesystem::path("/tmp") : parent) / "sherd-run-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::InternalError(
        absl::StrCat("cannot make the temporary directory ", directory, ": ", strerror(errno)));
  }
  int ends[2];
  // Packets keep messages whole.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    const int reason = errno;
    rmdir(directory.c_str());
    return absl::InternalError(absl::StrCat("cannot make a socket pair: ", strerror(reason)));
  }
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[1]);
    Serve(ends[0], directory);
  }
  const int reason = errno;
  close(ends[0]);
  if (pid > 0) return Janitor(pid, ends[1], directory);
  close(ends[1]);
  rmdir(directory.c_str());
  return absl::InternalError(absl::StrCat("cannot start a process: ", strerror(reason)));
}

Janitor::Janitor(pid_t pid, int socket, std::string directory)
    : pid_(pid), socket_(socket), directory_(std::move(directory)) {}

Janitor::Janitor(Janitor&& other)
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      directory_(std::move(other.directory_)) {}

void Janitor::Finish() {
  if (const int socket = std::exchange(socket_, -1); socket >= 0) close(socket);
  const pid_t pid = std::exchange(pid_, -1);
  while (pid > 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Janitor::TakeCareOf(pid_t group) { Tell(group); }
void Janitor::Forget(pid_t group) { Tell(-group); }

void Janitor::Tell(pid_t message) {
  // A janitor that is gone can only be done without.
  [[maybe_unused]] const ssize_t written = send(socket_, &message, sizeof(message), MSG_NOSIGNAL);
}

}  // namespace sherd
