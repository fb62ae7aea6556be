#include "coordinator/rpc/session_reactor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/grpc_status.h"

namespace sherd {
namespace {

// A worker reads at once; one that leaves this many messages unread is out of order.
constexpr size_t kMostOutgoing = 4096;
// Longest wait for room in the event loop's queue. Only a loop that is stuck takes so long.
constexpr absl::Duration kPatience = absl::Seconds(1);
// Between two looks at the file of tokens; workers send far more messages.
constexpr std::chrono::milliseconds kRecheck(250);

}  // namespace

SessionReactor::SessionReactor(EventLoop& loop, RpcCounter& counter, Access& access,
                               const grpc::ServerContextBase& context)
    : loop_(loop),
      counter_(counter),
      access_(access),
      context_(context),
      link_(std::make_shared<SessionLink>(this)) {
  StartRead(&request_);
}

absl::Status SessionReactor::StillAllowed() {
  const auto now = std::chrono::steady_clock::now();
  if (now - allowed_at_ < kRecheck) return absl::OkStatus();
  allowed_at_ = now;
  return access_.Check(context_, Role::kWorker);
}

void SessionReactor::OnReadDone(bool ok) {
  // The worker went away or has nothing more to say.
  if (!ok) return Close(absl::OkStatus());
  if (const absl::Status allowed = StillAllowed(); !allowed.ok()) return Close(allowed);
  Dispatch();
  request_.Clear();
  absl::MutexLock lock(&mutex_);
  // What was sent after a message that got lost must not be acknowledged.
  if (!closing_) StartRead(&request_);
}

void SessionReactor::Dispatch() {
  bool posted = true;
  if (greeted_) {
    posted =
        loop_.Post([link = link_, request = std::move(request_)](
                       Controller& controller) { controller.fleet().Receive(link.get(), request); },
                   kPatience);
  } else if (request_.has_hello()) {
    greeted_ = true;
    posted = loop_.Post([link = link_, hello = std::move(*request_.mutable_hello())](
                            Controller& controller) { controller.fleet().Connect(hello, link); },
                        kPatience);
  } else {
    Close(absl::FailedPreconditionError("a session's first message must be Hello"));
  }
  if (!posted) Close(absl::UnavailableError("the coordinator stops or is stuck; connect again"));
}

void SessionReactor::Send(v1::SessionResponse message) {
  absl::MutexLock lock(&mutex_);
  if (closing_) return;
  if (outgoing_.size() >= kMostOutgoing) {
    return CloseLocked(absl::ResourceExhaustedError(
        absl::StrCat("the worker left ", outgoing_.size(), " messages unread")));
  }
  outgoing_.push_back(std::move(message));
  if (std::exchange(writing_, true)) return;
  StartWrite(&outgoing_.front());
}

void SessionReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok) {
    // Nobody reads the rest.
    outgoing_.clear();
    return CloseLocked(absl::UnavailableError("the worker's stream broke"));
  }
  outgoing_.pop_front();
  if (!outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
  } else if (closing_) {
    FinishLocked();
  }
}

void SessionReactor::OnCancel() { Close(absl::CancelledError("the worker's stream broke")); }

void SessionReactor::Close(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  CloseLocked(status);
}

void SessionReactor::CloseLocked(const absl::Status& status) {
  if (!closing_) closing_ = status;
  if (!writing_) FinishLocked();
}

void SessionReactor::FinishLocked() {
  if (std::exchange(finished_, true)) return;
  Finish(ToGrpcStatus(*closing_));
}

void SessionReactor::OnDone() {
  {
    absl::MutexLock lock(&mutex_);
    counter_.Count("Session", *closing_);
  }
  link_->Detach();
  // Should the queue stay full, the worker's lease tells the same later.
  loop_.Post([link = link_](Controller& controller) { controller.fleet().Disconnect(link.get()); },
             kPatience);
  delete this;
}

void SessionLink::Send(v1::SessionResponse message) {
  absl::MutexLock lock(&mutex_);
  if (reactor_ != nullptr) reactor_->Send(std::move(message));
}

void SessionLink::Close(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (reactor_ != nullptr) reactor_->Close(status);
}

void SessionLink::Detach() {
  absl::MutexLock lock(&mutex_);
  reactor_ = nullptr;
}

}  // namespace sherd
