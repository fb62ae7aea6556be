#include "worker/agent/exit_reporter.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/steady_await.h"
#include "sherd/v1/worker.grpc.pb.h"
#include "worker/agent/backoff.h"
#include "worker/agent/channel.h"
#include "worker/agent/mend_strings.h"

namespace sherd {
namespace {

constexpr absl::Duration kAttemptLimit = absl::Seconds(2);
constexpr absl::Duration kFarewellLimit = absl::Milliseconds(500);

}  // namespace

ExitReporter::ExitReporter(std::string coordinator, SecurityOptions security)
    : coordinator_(std::move(coordinator)),
      security_(std::move(security)),
      thread_([this] { Run(); }) {}

ExitReporter::~ExitReporter() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    const auto told = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return requests_.empty(); };
    AwaitSteadily(mutex_, absl::Condition(&told), kFarewellLimit);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.join();
}

void ExitReporter::Report(v1::ReportExitRequest request) {
  MendStrings(request);
  absl::MutexLock lock(&mutex_);
  requests_.push_back(std::move(request));
  // The front one may be under way.
  if (requests_.size() > kWaiting) requests_.erase(requests_.begin() + 1);
}

void ExitReporter::Run() {
  Backoff backoff(absl::Milliseconds(50), absl::Seconds(1), /*seed=*/1);
  while (true) {
    v1::ReportExitRequest request;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return stopping_ || closing_ || !requests_.empty();
      };
      mutex_.Await(absl::Condition(&due));
      if (stopping_ || requests_.empty()) return;
      request = requests_.front();
    }
    const bool told = Tell(request);
    absl::MutexLock lock(&mutex_);
    if (told) {
      requests_.pop_front();
      backoff.Reset();
    } else {
      AwaitSteadily(mutex_, absl::Condition(&stopping_), backoff.Next());
    }
  }
}

absl::Status ExitReporter::Call(const v1::ReportExitRequest& request) {
  SHERD_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         MakeCoordinatorChannel(security_, coordinator_, kAttemptLimit));
  grpc::ClientContext context;
  SHERD_RETURN_IF_ERROR(Authorize(security_, context));
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(kAttemptLimit));
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    context_ = &context;
  }
  v1::ReportExitResponse response;
  const absl::Status status =
      ToAbsl(v1::WorkerService::NewStub(channel)->ReportExit(&context, request, &response));
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  return status;
}

bool ExitReporter::Tell(const v1::ReportExitRequest& request) {
  const absl::Status status = Call(request);
  if (status.ok()) return true;
  const bool away =
      absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
  // What the coordinator refuses it will always refuse.
  if (!away) {
    Log(Severity::kWarning, absl::StrCat("the coordinator did not take the exit of ",
                                         request.worker_id(), ": ", status.message()));
  }
  return !away;
}

}  // namespace sherd
