#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"
#include "common/steady_await.h"
#include "sherd/v1/worker.pb.h"
#include "worker/agent/report_buffer.h"

namespace grpc {
class ClientContext;
}  // namespace grpc

namespace sherd {

struct SessionOptions {
  std::string coordinator;  // "HOST:PORT"
  SecurityOptions security;
  // Longest wait for the first Welcome; zero waits for ever. A session that once was is never given
  // up.
  absl::Duration connect_timeout = absl::ZeroDuration();
  absl::Duration first_backoff = absl::Milliseconds(50);
  absl::Duration longest_backoff = absl::Seconds(1);
  // A coordinator that takes a stream and does not welcome it for this long is tried anew.
  absl::Duration welcome_timeout = absl::Seconds(10);
  // Between two sentences about a coordinator that cannot be reached.
  absl::Duration notice_interval = absl::Seconds(5);
  size_t report_capacity = 4096;
};

// Hears what the coordinator wants. Called from the session's own thread, never under a lock; must
// not block.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  // Who the worker is and which rank it holds at this moment; the first message of every stream.
  virtual v1::Hello MakeHello() = 0;
  virtual void OnConnected() = 0;
  virtual void OnDisconnected() = 0;
  virtual void OnAssign(v1::Assignment assignment) = 0;
  virtual void OnAbort(v1::Abort abort) = 0;
  virtual void OnInspect(v1::InspectData request) = 0;
  virtual void OnShutdown(v1::Shutdown shutdown) = 0;
  virtual void OnReportHoldings(v1::ReportHoldings request) = 0;
  virtual void OnRetain(v1::Retain retain) = 0;
  virtual void OnPause(v1::Pause pause) = 0;
  virtual void OnLocate(v1::LocateRank request) = 0;
  virtual void OnHold(v1::Hold hold) = 0;
  // The last call: kAlreadyExists when a newer incarnation of the worker has the session,
  // kDeadlineExceeded when the coordinator did not welcome it in time. The message is a sentence.
  virtual void OnEnded(absl::Status why) = 0;
};

// A worker's one conversation with its coordinator. Streams break; the session goes on: it opens
// the next one as the same incarnation, and sends what was not acknowledged again. Heartbeats have
// a thread of their own, so nothing that trains can silence them. Thread-safe.
class Session {
 public:
  // `handler` must outlive the session.
  Session(SessionOptions options, SessionHandler& handler);
  // As Stop().
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Opens the first stream. Call once.
  void Start();
  // Never blocks on the network. Returns false when a step, evaluation or log line had to be
  // dropped because the coordinator is away for long.
  bool Send(v1::RankReport report);
  // As milestones among the reports, which are never dropped.
  void Send(v1::HoldingsReport report);
  void Send(v1::Leaving leaving);
  // On the current stream or not at all: a coordinator that lost the answer has dropped the
  // question.
  void Send(v1::DataInspection inspection);
  void Send(v1::RankPosition position);
  // There is a stream, and the coordinator has welcomed it.
  bool connected();
  // Waits until the coordinator has acknowledged every report; false when it did not within
  // `timeout` or the session has ended.
  bool Flush(absl::Duration timeout);
  // Says goodbye where the stream is whole (waits half a second for it), ends all calls.
  void Stop();

 private:
  class Stream;  // one gRPC stream
  struct StreamEnd {
    absl::Status why;
    bool welcomed = false;
  };

  bool SendNumbered(v1::SessionRequest request);
  void Answer(v1::SessionRequest request);
  void Run();
  // One stream from Hello to its end.
  StreamEnd RunStream(absl::Duration connect_limit);
  // Not OK when the session must end; says now and then why there is none.
  absl::Status Verdict(const absl::Status& why, absl::Duration give_up_at);
  // Sends reports and heartbeats until the stream is over; its thread ends with the stream.
  void Transmit(Stream& stream);
  // Waits for what is to be sent next; false when the stream is over or the session stops.
  bool NextMessage(absl::Duration& next_heartbeat, v1::SessionRequest& request);
  void Dispatch(v1::SessionResponse& response);
  void Welcome(const v1::SessionResponse& response);
  bool Stopping();

  const SessionOptions options_;
  SessionHandler& handler_;

  absl::Mutex mutex_;
  SteadyAwait await_;
  ReportBuffer buffer_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::SessionRequest> answers_ ABSL_GUARDED_BY(mutex_);  // to questions
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the current stream.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stream_over_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Duration heartbeat_interval_ ABSL_GUARDED_BY(mutex_);

  // Of the session's thread alone.
  bool ever_welcomed_ = false;
  absl::Duration lost_at_;
  absl::Duration noticed_at_ = -absl::InfiniteDuration();

  std::thread thread_;
};

}  // namespace sherd
