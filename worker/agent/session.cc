#include "worker/agent/session.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "sherd/v1/worker.grpc.pb.h"
#include "worker/agent/backoff.h"
#include "worker/agent/channel.h"
#include "worker/agent/mend_strings.h"
#include "worker/agent/monotonic.h"

namespace sherd {
namespace {

// Between two heartbeats if a Welcome names no interval.
constexpr absl::Duration kDefaultHeartbeat = absl::Seconds(1);
constexpr absl::Duration kGoodbyeLimit = absl::Milliseconds(500);
// One attempt to connect; a host that swallows packets must not hold up the next attempt for long.
constexpr absl::Duration kConnectLimit = absl::Seconds(2);

}  // namespace

class Session::Stream {
 public:
  Stream(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context)
      : stub_(v1::WorkerService::NewStub(channel)), stream_(stub_->Session(&context)) {}
  bool Write(const v1::SessionRequest& request) { return stream_->Write(request); }
  bool Read(v1::SessionResponse& response) { return stream_->Read(&response); }
  void WritesDone() { stream_->WritesDone(); }
  absl::Status Finish() { return ToAbsl(stream_->Finish()); }

 private:
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> stream_;
};

Session::Session(SessionOptions options, SessionHandler& handler)
    : options_(std::move(options)),
      handler_(handler),
      buffer_(options_.report_capacity),
      heartbeat_interval_(kDefaultHeartbeat),
      lost_at_(MonotonicNow()) {}

void Session::Start() {
  thread_ = std::thread([this] { Run(); });
}

Session::~Session() { Stop(); }

bool Session::Send(v1::RankReport report) {
  v1::SessionRequest request;
  *request.mutable_report() = std::move(report);
  return SendNumbered(std::move(request));
}

void Session::Send(v1::HoldingsReport report) {
  v1::SessionRequest request;
  *request.mutable_holdings() = std::move(report);
  SendNumbered(std::move(request));
}

void Session::Send(v1::Leaving leaving) {
  v1::SessionRequest request;
  *request.mutable_leaving() = std::move(leaving);
  SendNumbered(std::move(request));
}

bool Session::SendNumbered(v1::SessionRequest request) {
  MendStrings(request);
  absl::MutexLock lock(&mutex_);
  if (buffer_.Add(std::move(request))) return true;
  if (dropped_++ == 0) {
    Log(Severity::kWarning,
        absl::StrCat("the coordinator takes no reports and ", options_.report_capacity,
                     " are waiting; the oldest step and log lines are dropped"));
  }
  return false;
}

void Session::Send(v1::DataInspection inspection) {
  v1::SessionRequest request;
  *request.mutable_inspection() = std::move(inspection);
  Answer(std::move(request));
}

void Session::Send(v1::RankPosition position) {
  v1::SessionRequest request;
  *request.mutable_position() = std::move(position);
  Answer(std::move(request));
}

void Session::Answer(v1::SessionRequest request) {
  MendStrings(request);
  absl::MutexLock lock(&mutex_);
  if (welcomed_ && !stream_over_) answers_.push_back(std::move(request));
}

bool Session::connected() {
  absl::MutexLock lock(&mutex_);
  return welcomed_ && !stream_over_;
}

bool Session::Flush(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto settled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return buffer_.size() == 0 || ended_;
  };
  await_.Await(mutex_, absl::Condition(&settled), timeout);
  return buffer_.size() == 0;
}

void Session::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (context_ != nullptr && !welcomed_) context_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
}

void Session::Run() {
  Backoff backoff(options_.first_backoff, options_.longest_backoff,
                  handler_.MakeHello().incarnation());
  const absl::Duration give_up_at = options_.connect_timeout > absl::ZeroDuration()
                                        ? MonotonicNow() + options_.connect_timeout
                                        : absl::InfiniteDuration();
  absl::Status end;
  while (true) {
    const absl::Duration left =
        ever_welcomed_ ? absl::InfiniteDuration() : give_up_at - MonotonicNow();
    const absl::Duration opened_at = MonotonicNow();
    const StreamEnd stream = RunStream(std::min(left, kConnectLimit));
    if (stream.welcomed) {
      // A coordinator that welcomes and drops at once must not be tried without a pause.
      if (MonotonicNow() - opened_at > options_.longest_backoff) backoff.Reset();
      lost_at_ = MonotonicNow();
      handler_.OnDisconnected();
    }
    if (Stopping()) break;
    end = Verdict(stream.why, give_up_at);
    if (!end.ok()) break;
    absl::MutexLock lock(&mutex_);
    if (await_.Await(mutex_, absl::Condition(&stopping_), backoff.Next())) break;
  }
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    if (stopping_) return;
  }
  handler_.OnEnded(end);
}

bool Session::Stopping() {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

absl::Status Session::Verdict(const absl::Status& why, absl::Duration give_up_at) {
  if (absl::IsAlreadyExists(why)) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process has taken this worker's id (", why.message(),
                     "); stop one of the two, or give one another --name"));
  }
  if (!ever_welcomed_ && MonotonicNow() >= give_up_at) {
    return absl::DeadlineExceededError(
        absl::StrCat("no coordinator at ", options_.coordinator, " within ",
                     absl::FormatDuration(options_.connect_timeout), ": ", why.message()));
  }
  if (MonotonicNow() - noticed_at_ < options_.notice_interval) return absl::OkStatus();
  noticed_at_ = MonotonicNow();
  Log(Severity::kWarning,
      absl::StrCat("no session with the coordinator at ", options_.coordinator, ": ",
                   absl::IsCancelled(why) ? "it does not answer" : why.message(),
                   "; trying again"));
  return absl::OkStatus();
}

Session::StreamEnd Session::RunStream(absl::Duration connect_limit) {
  // Anew for every stream: certificates and tokens are renewed.
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      MakeCoordinatorChannel(options_.security, options_.coordinator, connect_limit);
  if (!channel.ok()) return {channel.status(), /*welcomed=*/false};
  grpc::ClientContext context;
  if (const absl::Status authorized = Authorize(options_.security, context); !authorized.ok()) {
    return {authorized, /*welcomed=*/false};
  }
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return {absl::CancelledError("stopping"), /*welcomed=*/false};
    welcomed_ = false;
    stream_over_ = false;
    context_ = &context;
    buffer_.Rewind();
    answers_.clear();
  }
  Stream stream(*channel, context);
  v1::SessionRequest hello;
  *hello.mutable_hello() = handler_.MakeHello();
  MendStrings(hello);
  // A write that fails shows in Finish.
  stream.Write(hello);
  std::thread transmitter([&] { Transmit(stream); });
  v1::SessionResponse response;
  while (stream.Read(response)) Dispatch(response);
  {
    absl::MutexLock lock(&mutex_);
    stream_over_ = true;
  }
  transmitter.join();
  absl::Status why = stream.Finish();
  if (why.ok()) why = absl::UnavailableError("the coordinator closed the session");
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  return {std::move(why), welcomed_};
}

void Session::Transmit(Stream& stream) {
  absl::Duration next_heartbeat;
  {
    absl::MutexLock lock(&mutex_);
    const auto welcomed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return welcomed_ || stream_over_;
    };
    if (!await_.Await(mutex_, absl::Condition(&welcomed), options_.welcome_timeout)) {
      context_->TryCancel();
      return;
    }
    next_heartbeat = MonotonicNow() + heartbeat_interval_;
  }
  v1::SessionRequest request;
  while (NextMessage(next_heartbeat, request)) {
    if (!stream.Write(request)) break;
  }
  stream.WritesDone();
  // The coordinator answers a goodbye by the end of the stream.
  absl::MutexLock lock(&mutex_);
  if (!await_.Await(mutex_, absl::Condition(&stream_over_), kGoodbyeLimit)) {
    context_->TryCancel();
  }
}

bool Session::NextMessage(absl::Duration& next_heartbeat, v1::SessionRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return stream_over_ || stopping_ || !answers_.empty() || buffer_.HasUnsent();
  };
  const bool woken = await_.Await(mutex_, absl::Condition(&due), next_heartbeat - MonotonicNow());
  if (stream_over_ || stopping_) return false;
  // A heartbeat first: no flood of reports may delay it.
  if (!woken || MonotonicNow() >= next_heartbeat) {
    request.Clear();
    request.mutable_heartbeat();
    next_heartbeat = MonotonicNow() + heartbeat_interval_;
  } else if (!answers_.empty()) {
    request = std::move(answers_.front());
    answers_.pop_front();
  } else {
    request = *buffer_.NextToSend();
  }
  return true;
}

void Session::Dispatch(v1::SessionResponse& response) {
  if (response.has_welcome()) return Welcome(response);
  {
    absl::MutexLock lock(&mutex_);
    buffer_.Acknowledge(response.acknowledged());
  }
  switch (response.message_case()) {
    case v1::SessionResponse::kAssign:
      return handler_.OnAssign(std::move(*response.mutable_assign()));
    case v1::SessionResponse::kAbort:
      return handler_.OnAbort(std::move(*response.mutable_abort()));
    case v1::SessionResponse::kInspectData:
      return handler_.OnInspect(std::move(*response.mutable_inspect_data()));
    case v1::SessionResponse::kShutdown:
      return handler_.OnShutdown(std::move(*response.mutable_shutdown()));
    case v1::SessionResponse::kReportHoldings:
      return handler_.OnReportHoldings(std::move(*response.mutable_report_holdings()));
    case v1::SessionResponse::kRetain:
      return handler_.OnRetain(std::move(*response.mutable_retain()));
    case v1::SessionResponse::kPause:
      return handler_.OnPause(std::move(*response.mutable_pause()));
    case v1::SessionResponse::kLocate:
      return handler_.OnLocate(std::move(*response.mutable_locate()));
    case v1::SessionResponse::kHold:
      return handler_.OnHold(std::move(*response.mutable_hold()));
    case v1::SessionResponse::kWelcome:
    case v1::SessionResponse::MESSAGE_NOT_SET:
      return;  // an acknowledgement alone
  }
}

void Session::Welcome(const v1::SessionResponse& response) {
  const absl::Duration interval = absl::Milliseconds(response.welcome().heartbeat_interval_ms());
  int64_t dropped = 0;
  {
    absl::MutexLock lock(&mutex_);
    // Reports that the last stream carried and whose acknowledgement it lost are not sent again.
    buffer_.Acknowledge(response.acknowledged());
    if (interval > absl::ZeroDuration()) heartbeat_interval_ = interval;
    dropped = std::exchange(dropped_, 0);
    welcomed_ = true;
  }
  handler_.OnConnected();
  if (!ever_welcomed_) {
    Log(Severity::kInfo, absl::StrCat("registered with the coordinator at ", options_.coordinator));
  } else {
    Log(Severity::kInfo, absl::StrCat("session resumed after ",
                                      absl::FormatDuration(absl::Trunc(MonotonicNow() - lost_at_,
                                                                       absl::Milliseconds(1)))));
  }
  if (dropped > 0) {
    Log(Severity::kWarning, absl::StrCat(dropped, " step and log lines were dropped meanwhile"));
  }
  ever_welcomed_ = true;
  noticed_at_ = -absl::InfiniteDuration();
}

}  // namespace sherd
