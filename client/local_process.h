#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sherd {

// A child process in a process group of its own, so that a Ctrl-C in the terminal does not reach
// it. Its output is appended to a file. Thread-safe.
class LocalProcess {
 public:
  // `arguments` begins with the program's path. kInternal, naming the program, when it cannot be
  // started.
  static absl::StatusOr<std::unique_ptr<LocalProcess>> Start(
      const std::vector<std::string>& arguments, const std::string& log_path);
  // Kills what is left of the group.
  ~LocalProcess();

  pid_t pid() const { return pid_; }
  const std::string& log_path() const { return log_path_; }
  // How it ended: "exited with code 1", "was killed by signal 9 (Killed)"; nothing while it runs.
  // Its group is gone then.
  std::optional<std::string> HowItEnded() ABSL_LOCKS_EXCLUDED(mutex_);
  // SIGTERM to the process, SIGKILL to its group after `grace`. Returns when it has ended.
  void Stop(absl::Duration grace) ABSL_LOCKS_EXCLUDED(mutex_);
  // SIGKILL to its group, at once.
  void Kill() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  LocalProcess(pid_t pid, std::string log_path);
  bool EndedWithin(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);

  const pid_t pid_;
  const std::string log_path_;
  absl::Mutex mutex_;
  // Once set, the process is reaped and its id may belong to somebody else.
  std::optional<std::string> how_it_ended_ ABSL_GUARDED_BY(mutex_);
};

// The last lines of a log file, for errors, of what stands after its first `begin` bytes; "" when
// there are none.
std::string TailOfFile(const std::string& path, int64_t begin = 0);

}  // namespace sherd
