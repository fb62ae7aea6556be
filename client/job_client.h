#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "sherd/v1/events.pb.h"
#include "sherd/v1/job.pb.h"
#include "sherd/v1/job_service.pb.h"

namespace sherd {

// What INVALID_ARGUMENT says about single fields, if it does.
std::optional<v1::InvalidFields> InvalidFieldsOf(const absl::Status& status);

// A string that no other submission has.
std::string NewRequestId();

// Calls a coordinator's JobService. Every call has a deadline. Errors carry the server's code and
// sentence; kUnavailable when the coordinator cannot be reached, in one sentence that says where it
// was sought and what to do. Thread-safe.
class JobClient {
 public:
  // `address` is "HOST:PORT"; nothing is connected yet, and what is wrong with `security` is every
  // call's error.
  explicit JobClient(const std::string& address, const SecurityOptions& security = {});
  ~JobClient();
  JobClient(const JobClient&) = delete;
  JobClient& operator=(const JobClient&) = delete;

  // Tries again with the same `request_id` while the coordinator does not answer, for a few
  // seconds: a request that had arrived makes no second job.
  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& request_id);
  // kNotFound when no job has the id; so do the others.
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id);
  // The same, but for a coordinator that cannot be reached it tries again for `patience`; says so
  // once through `on_interruption`.
  absl::StatusOr<v1::Job> AwaitJob(const std::string& job_id, absl::Duration patience,
                                   const std::function<void(const std::string&)>& on_interruption);
  // All jobs, newest first; takes as many calls as it needs.
  absl::StatusOr<std::vector<v1::Job>> ListJobs();
  absl::StatusOr<v1::Job> Cancel(const std::string& job_id);
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();
  // Has a worker leave. kNotFound when no worker has the id, kFailedPrecondition when it is lost.
  absl::StatusOr<v1::Worker> Drain(const std::string& worker_id);

  struct WatchCallbacks {
    // Every event once, in order.
    std::function<void(const v1::JobEvent&)> on_event;
    // The stream broke and is being resumed: a sentence.
    std::function<void(const std::string&)> on_interruption;
  };
  // Blocks until the job has ended and its last event, `done`, was given. A broken stream is
  // resumed after the last event; kUnavailable when the coordinator stays away for `patience`;
  // kCancelled after StopWatching.
  absl::Status Watch(const std::string& job_id, absl::Duration patience,
                     const WatchCallbacks& callbacks);
  // Ends the present Watch and every later one. From any thread.
  void StopWatching();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sherd
