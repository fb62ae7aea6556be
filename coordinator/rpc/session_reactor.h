#pragma once

#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/rpc/access.h"
#include "coordinator/rpc/rpc_counter.h"
#include "coordinator/runtime/event_loop.h"
#include "coordinator/runtime/worker_link.h"
#include "sherd/v1/worker.pb.h"

namespace sherd {

class SessionLink;

// One Session stream, let in by `access`. Reads on gRPC's threads and passes what it reads to the
// event loop; writes what the loop sends through its link. Looks again now and then whether it may:
// a token that is withdrawn ends it at its next message, and one that sends none loses its lease.
// Deletes itself when the stream is over.
class SessionReactor final
    : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  // `context` is the stream's.
  SessionReactor(EventLoop& loop, RpcCounter& counter, Access& access,
                 const grpc::ServerContextBase& context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // The link's side: queues a message, or ends the stream once the queue is empty.
  void Send(v1::SessionResponse message) ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Whether its token is still one that may be a worker's.
  absl::Status StillAllowed();
  void Dispatch();
  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EventLoop& loop_;
  RpcCounter& counter_;
  Access& access_;
  const grpc::ServerContextBase& context_;
  const std::shared_ptr<SessionLink> link_;
  // Of the one read at a time.
  v1::SessionRequest request_;
  bool greeted_ = false;
  std::chrono::steady_clock::time_point allowed_at_ = std::chrono::steady_clock::now();

  absl::Mutex mutex_;
  // The front is being written while `writing_`.
  std::deque<v1::SessionResponse> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

// What the event loop holds of a stream; outlives it, and does nothing from then on.
class SessionLink final : public WorkerLink {
 public:
  explicit SessionLink(SessionReactor* reactor) : reactor_(reactor) {}
  void Send(v1::SessionResponse message) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(const absl::Status& status) override ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream is over.
  void Detach() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  SessionReactor* reactor_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
