#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/interrupts.h"
#include "client/janitor.h"
#include "client/local_process.h"

namespace sherd {

class JobClient;

// Of the files in LocalCluster's log directory.
std::vector<std::string> LogNames();

// The path of a program of this project: beside the present one, else on PATH.
// kFailedPrecondition says where it was sought.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// A coordinator and one supervisor of N workers as child processes of this one. Nothing of it
// outlives this object or this process. Start and Stop on the main thread: the children end when
// the thread that started them ends. The rest is thread-safe.
class LocalCluster {
 public:
  struct Options {
    int workers = 1;
    std::string data_root;
    std::string output_root;
    // Exists; gets, or has appended to it, coordinator.log and workers.log.
    std::string log_directory;
    int64_t failure_detection_ms = 3000;
  };

  // `janitor` and `interrupts` must outlive the cluster.
  LocalCluster(Options options, Janitor& janitor, const Interrupts& interrupts);
  ~LocalCluster();

  // Starts the coordinator and waits for its address. kCancelled when interrupted; else what failed
  // and the end of its log.
  absl::Status StartCoordinator();
  // Starts the workers and waits until all are connected. Errors as above.
  absl::Status StartWorkers(JobClient& client);
  const std::string& address() const { return address_; }

  // kUnavailable when the process has ended: how, and the end of its log.
  absl::Status CheckCoordinator() { return CheckAlive(kCoordinator); }
  absl::Status CheckWorkers() { return CheckAlive(kWorkers); }
  // SIGTERM, then SIGKILL after a few seconds; the workers first.
  void Stop();
  // SIGKILL to everything, at once.
  void Kill();

 private:
  enum Role { kCoordinator, kWorkers, kRoles };

  absl::Status StartProgram(Role role, std::vector<std::string> arguments)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status AwaitAddress(const std::string& port_file);
  // nullptr before its start; stays valid as long as the cluster.
  LocalProcess* ProcessOf(Role role) ABSL_LOCKS_EXCLUDED(mutex_);
  // How a process that should run has ended, as an error.
  absl::Status CheckAlive(Role role);
  absl::Status Failure(Role role, absl::string_view what);

  const Options options_;
  Janitor& janitor_;
  const Interrupts& interrupts_;
  std::string address_;
  // Where this run's part of each log begins; logs of earlier runs are kept.
  int64_t log_begins_[kRoles] = {};

  absl::Mutex mutex_;
  std::unique_ptr<LocalProcess> processes_[kRoles] ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
