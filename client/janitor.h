#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace sherd {

// A process of its own that outlives this one by a moment: however this one ends, SIGKILL included,
// it kills the process groups that are still in its care and removes a directory.
class Janitor {
 public:
  // Makes a private directory below the system's one for temporary files. Forks: call before any
  // thread starts. kInternal when a process or directory cannot be had.
  static absl::StatusOr<Janitor> Start();
  Janitor(Janitor&& other);
  Janitor& operator=(Janitor&&) = delete;
  ~Janitor() { Finish(); }

  const std::string& directory() const { return directory_; }
  // Of a process group that has started, and of one whose end this process has seen.
  void TakeCareOf(pid_t group);
  void Forget(pid_t group);
  // Has the work done now and waits for its end.
  void Finish();

 private:
  Janitor(pid_t pid, int socket, std::string directory);
  void Tell(pid_t message);

  pid_t pid_;
  int socket_;
  std::string directory_;
};

}  // namespace sherd
