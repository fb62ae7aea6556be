#pragma once

#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "sherd/v1/worker.pb.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace sherd {

// Tells the coordinator how child processes ended, one after another on a thread of its own; tries
// again while the coordinator is away. Thread-safe.
class ExitReporter {
 public:
  ExitReporter(std::string coordinator, SecurityOptions security);
  // Waits half a second at most for what is still to be told.
  ~ExitReporter();

  // Never blocks. Keeps the newest kWaiting reports.
  void Report(v1::ReportExitRequest request);

  static constexpr size_t kWaiting = 256;

 private:
  void Run();
  // One attempt; false when it should be repeated.
  bool Tell(const v1::ReportExitRequest& request);
  absl::Status Call(const v1::ReportExitRequest& request);

  const std::string coordinator_;
  const SecurityOptions security_;
  absl::Mutex mutex_;
  std::deque<v1::ReportExitRequest> requests_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;   // no more will come
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;  // and there is no time left
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace sherd
