#include "worker/agent/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/agent/parent.h"

namespace sherd {
namespace {

constexpr int kCannotRun = 127;

// Between fork and exec of a process with threads: async-signal-safe calls only.
[[noreturn]] void Become(const char* program, char* const* arguments, pid_t parent,
                         int handed_over) {
  ExitWithParent(parent);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A terminal's Ctrl-C reaches parent and child; the parent passes it on, once, as SIGTERM.
  signal(SIGINT, SIG_IGN);
  // A socket or pipe of the parent that a child kept open would outlive the parent.
  syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
  if (handed_over == kHandedOver) {
    fcntl(kHandedOver, F_SETFD, 0);
  } else if (handed_over >= 0) {
    dup2(handed_over, kHandedOver);
  }
  execv(program, arguments);
  _exit(kCannotRun);
}

}  // namespace

std::string ChildExit::Describe() const {
  if (signal == 0) return absl::StrCat("exit code ", code);
  const char* name = sigabbrev_np(signal);
  return absl::StrCat("killed by signal ", signal, name == nullptr ? "" : " (SIG",
                      name == nullptr ? "" : name, name == nullptr ? "" : ")");
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::string& program, const std::vector<std::string>& arguments, int handed_over) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));
  }
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(program.c_str(), words.data(), parent, handed_over);
  if (pid < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", strerror(errno)));
  }
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0) {
    const int error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return absl::ResourceExhaustedError(absl::StrCat("cannot watch a process: ", strerror(error)));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, descriptor));
}

ChildProcess::~ChildProcess() {
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(descriptor_);
}

void ChildProcess::Signal(int signal) {
  if (!reaped_) kill(pid_, signal);
}

std::optional<ChildExit> ChildProcess::Reap() {
  int status = 0;
  if (reaped_ || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  reaped_ = true;
  ChildExit ended;
  if (WIFSIGNALED(status)) {
    ended.signal = WTERMSIG(status);
  } else {
    ended.code = WEXITSTATUS(status);
  }
  return ended;
}

}  // namespace sherd
