#pragma once

#include "absl/status/status.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

// The coordinator's end of one open session stream. Thread-safe; no call blocks.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Queues a message. A link whose worker does not keep up closes itself with kResourceExhausted.
  virtual void Send(v1::SessionResponse message) = 0;
  // Ends the stream with `status` once what was queued is sent. The first call counts.
  virtual void Close(const absl::Status& status) = 0;
};

}  // namespace sherd
