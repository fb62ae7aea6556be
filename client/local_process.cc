#include "client/local_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

extern char** environ;

namespace sherd {
namespace {

std::string Describe(const siginfo_t& end) {
  if (end.si_code == CLD_EXITED) return absl::StrCat("exited with code ", end.si_status);
  return absl::StrCat("was killed by signal ", end.si_status, " (", strsignal(end.si_status), ")");
}

// The settings of a spawn; released with it.
struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalProcess>> LocalProcess::Start(
    const std::vector<std::string>& arguments, const std::string& log_path) {
  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&settings.actions, STDOUT_FILENO, log_path.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&settings.actions, STDOUT_FILENO, STDERR_FILENO);
  // This process blocks the signals that it handles; the child starts with the usual ones.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &all);
  posix_spawnattr_setpgroup(&settings.attributes, 0);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, argv[0], &settings.actions, &settings.attributes, argv.data(), environ);
  if (error != 0) {
    return absl::InternalError(
        absl::StrCat("cannot start ", arguments[0], " (log ", log_path, "): ", strerror(error)));
  }
  return std::unique_ptr<LocalProcess>(new LocalProcess(pid, log_path));
}

LocalProcess::LocalProcess(pid_t pid, std::string log_path)
    : pid_(pid), log_path_(std::move(log_path)) {}

LocalProcess::~LocalProcess() { Stop(absl::ZeroDuration()); }

std::optional<std::string> LocalProcess::HowItEnded() {
  absl::MutexLock lock(&mutex_);
  if (how_it_ended_) return how_it_ended_;
  siginfo_t end = {};
  // Looked at first and reaped after its group is killed: until then the id stays taken.
  if (waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT) != 0) {
    how_it_ended_ = absl::StrCat("is lost: ", strerror(errno));
    return how_it_ended_;
  }
  if (end.si_pid == 0) return std::nullopt;
  kill(-pid_, SIGKILL);
  waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG);
  how_it_ended_ = Describe(end);
  return how_it_ended_;
}

bool LocalProcess::EndedWithin(absl::Duration duration) {
  constexpr absl::Duration kPollInterval = absl::Milliseconds(5);
  const absl::Time deadline = absl::Now() + duration;
  while (!HowItEnded()) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(kPollInterval);
  }
  return true;
}

void LocalProcess::Stop(absl::Duration grace) {
  if (grace > absl::ZeroDuration() && !HowItEnded()) {
    absl::MutexLock lock(&mutex_);
    if (!how_it_ended_) kill(pid_, SIGTERM);
  }
  if (EndedWithin(grace)) return;
  Kill();
  EndedWithin(absl::InfiniteDuration());
}

void LocalProcess::Kill() {
  absl::MutexLock lock(&mutex_);
  if (!how_it_ended_) kill(-pid_, SIGKILL);
}

std::string TailOfFile(const std::string& path, int64_t begin) {
  constexpr std::streamoff kBytes = 4096;
  constexpr size_t kLines = 12;
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  const std::streamoff end = stream.tellg();
  const std::streamoff start = std::max<std::streamoff>(begin, end - kBytes);
  if (start >= end) return "";
  stream.seekg(start);
  std::string text(static_cast<size_t>(end - start), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (lines.size() > kLines) lines.erase(lines.begin(), lines.end() - kLines);
  return absl::StrJoin(lines, "\n");
}

}  // namespace sherd
