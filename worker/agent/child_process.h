#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sherd {

// The descriptor under which a child finds what its parent hands over.
inline constexpr int kHandedOver = 3;

// How a process ended: by a signal, or by itself with a code.
struct ChildExit {
  int signal = 0;
  int code = 0;
  // "killed by signal 9 (SIGKILL)", "exit code 1".
  std::string Describe() const;
};

// A child process that the kernel kills when the thread that started it ends (F36). Not
// thread-safe.
class ChildProcess {
 public:
  // Runs the program at a path with `arguments`, of which the first is the name it goes by. It
  // inherits nothing but the standard streams and, as kHandedOver, the descriptor `handed_over`,
  // -1 for none. kResourceExhausted when the system has no process or descriptor to give; a program
  // that cannot be run ends with exit code 127.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(
      const std::string& program, const std::vector<std::string>& arguments, int handed_over = -1);
  // Kills the process and waits for its end if that was not reaped.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Becomes readable when the process ends, for poll().
  int descriptor() const { return descriptor_; }
  void Signal(int signal);
  // How the process ended, once; nullopt while it runs. Never blocks.
  std::optional<ChildExit> Reap();

 private:
  ChildProcess(pid_t pid, int descriptor) : pid_(pid), descriptor_(descriptor) {}

  const pid_t pid_;
  const int descriptor_;
  bool reaped_ = false;
};

}  // namespace sherd
