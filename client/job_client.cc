#include "client/job_client.h"

#include <chrono>
#include <cstddef>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/limits.h"
#include "common/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "sherd/v1/job_service.grpc.pb.h"

namespace sherd {
namespace {

constexpr char kInvalidFieldsUrl[] = "type.googleapis.com/sherd.v1.InvalidFields";
// Of one call: a submission also has workers look at its files.
constexpr absl::Duration kCallDeadline = absl::Seconds(30);
constexpr absl::Duration kSubmitPatience = absl::Seconds(5);
constexpr absl::Duration kRetryPause = absl::Milliseconds(100);
// Of one attempt to connect: far networks and busy machines take their time. One that is refused
// fails at once.
constexpr int kConnectLimitMs = 5'000;

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  // A dead peer on a silent stream is found by pings; the server permits this interval.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectLimitMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetMaxReceiveMessageSize(kMostCoordinatorMessageBytes);
  return arguments;
}

std::chrono::system_clock::time_point DeadlineIn(absl::Duration duration) {
  return absl::ToChronoTime(absl::Now() + duration);
}

// "Connection refused" of gRPC's chain of causes.
std::string LastCause(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

bool IsTransient(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

// The server's answer about the job, as opposed to a stream that was cut on its way: one that ends
// well, but without the last event, was cut too.
bool IsVerdict(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::ABORTED:
      return false;
    default:
      return true;
  }
}

absl::Status ToStatus(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const std::string cause = LastCause(status.error_message());
  if (IsTransient(status) && absl::StrContains(cause, "SSL")) {
    return absl::UnavailableError(
        absl::StrCat("cannot reach the coordinator at ", address, ": ", cause,
                     "; is --tls-ca the authority that signed its certificate, and the host or "
                     "--tls-server-name a name in it?"));
  }
  if (IsTransient(status)) {
    return absl::UnavailableError(
        absl::StrCat("cannot reach the coordinator at ", address, ": ", cause,
                     "; is it running? Start one with 'sherd-coordinator --listen ", address,
                     "' or name another with --coordinator HOST:PORT"));
  }
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  v1::RpcStatus details;
  if (!details.ParseFromString(status.error_details())) return converted;
  for (const google::protobuf::Any& detail : details.details()) {
    v1::InvalidFields invalid;
    if (detail.UnpackTo(&invalid)) {
      converted.SetPayload(kInvalidFieldsUrl, absl::Cord(invalid.SerializeAsString()));
    }
  }
  return converted;
}

}  // namespace

struct JobClient::Impl {
  Impl(const std::string& address, const SecurityOptions& security)
      : address(address),
        security(security),
        channel(MakeChannel(security, address, Arguments())),
        stub(channel.ok() ? v1::JobService::NewStub(*channel) : nullptr) {}

  // Has a call carry the token; not OK when there can be no call.
  grpc::Status Prepare(grpc::ClientContext& context) const {
    absl::StatusOr<std::string> authorization =
        channel.ok() ? ReadAuthorization(security) : channel.status();
    if (!authorization.ok()) {
      return {static_cast<grpc::StatusCode>(authorization.status().code()),
              std::string(authorization.status().message())};
    }
    if (!authorization->empty()) context.AddMetadata("authorization", *authorization);
    return grpc::Status::OK;
  }

  // Calls a unary method once. A deadline that passes here is UNAVAILABLE; one that the server
  // speaks of is its answer.
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Response*),
                    const Request& request, Response& response) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineIn(kCallDeadline));
    if (grpc::Status prepared = Prepare(context); !prepared.ok()) return prepared;
    const grpc::Status status = (stub.get()->*method)(&context, request, &response);
    const bool late = std::chrono::system_clock::now() >= context.deadline();
    if (!late || status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return status;
    return {grpc::StatusCode::UNAVAILABLE,
            absl::StrCat("no answer within ", absl::FormatDuration(kCallDeadline))};
  }

  // Reads one stream to its end; grows `after` with every event.
  grpc::Status ReadFeed(const std::string& job_id, int64_t& after, bool& done,
                        const WatchCallbacks& callbacks) ABSL_LOCKS_EXCLUDED(mutex);
  // Waits for a connection and at least a moment; false when there is none at `deadline` or
  // StopWatching was called.
  bool AwaitConnection(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex);
  bool stopped() ABSL_LOCKS_EXCLUDED(mutex) {
    absl::MutexLock lock(&mutex);
    return stop;
  }

  const std::string address;
  const SecurityOptions security;
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel;
  const std::unique_ptr<v1::JobService::Stub> stub;

  absl::Mutex mutex;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  grpc::ClientContext* watching ABSL_GUARDED_BY(mutex) = nullptr;
};

grpc::Status JobClient::Impl::ReadFeed(const std::string& job_id, int64_t& after, bool& done,
                                       const WatchCallbacks& callbacks) {
  grpc::ClientContext context;
  if (grpc::Status prepared = Prepare(context); !prepared.ok()) return prepared;
  {
    absl::MutexLock lock(&mutex);
    if (stop) return grpc::Status::CANCELLED;
    watching = &context;
  }
  v1::WatchRequest request;
  request.set_job_id(job_id);
  request.set_after_sequence(after);
  const auto reader = stub->Watch(&context, request);
  v1::WatchResponse response;
  while (reader->Read(&response)) {
    const v1::JobEvent& event = response.event();
    if (event.sequence() <= after) continue;
    after = event.sequence();
    done = done || event.has_done();
    callbacks.on_event(event);
  }
  const grpc::Status status = reader->Finish();
  absl::MutexLock lock(&mutex);
  watching = nullptr;
  return status;
}

bool JobClient::Impl::AwaitConnection(absl::Time deadline) {
  while (absl::Now() < deadline) {
    {
      absl::MutexLock lock(&mutex);
      if (mutex.AwaitWithTimeout(absl::Condition(&stop), kRetryPause)) return false;
    }
    if ((*channel)->WaitForConnected(DeadlineIn(kRetryPause))) return true;
  }
  return false;
}

JobClient::JobClient(const std::string& address, const SecurityOptions& security)
    : impl_(std::make_unique<Impl>(address, security)) {}
JobClient::~JobClient() = default;

std::optional<v1::InvalidFields> InvalidFieldsOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kInvalidFieldsUrl);
  v1::InvalidFields invalid;
  if (!payload.has_value() || !invalid.ParseFromString(std::string(*payload))) return std::nullopt;
  return invalid;
}

std::string NewRequestId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", random());
  return id;
}

absl::StatusOr<v1::Job> JobClient::Submit(const v1::JobSpec& spec, const std::string& request_id) {
  v1::SubmitRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = spec;
  const absl::Time give_up = absl::Now() + kSubmitPatience;
  while (true) {
    v1::SubmitResponse response;
    const grpc::Status status = impl_->Call(&v1::JobService::Stub::Submit, request, response);
    if (status.ok()) return response.job();
    if (!IsTransient(status) || !impl_->AwaitConnection(give_up)) {
      return ToStatus(status, impl_->address);
    }
  }
}

absl::StatusOr<v1::Job> JobClient::GetJob(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  v1::GetJobResponse response;
  SHERD_RETURN_IF_ERROR(
      ToStatus(impl_->Call(&v1::JobService::Stub::GetJob, request, response), impl_->address));
  return response.job();
}

absl::StatusOr<v1::Job> JobClient::AwaitJob(
    const std::string& job_id, absl::Duration patience,
    const std::function<void(const std::string&)>& on_interruption) {
  const absl::Time give_up = absl::Now() + patience;
  bool told = false;
  while (true) {
    absl::StatusOr<v1::Job> job = GetJob(job_id);
    if (job.ok() || job.status().code() != absl::StatusCode::kUnavailable) return job;
    if (!std::exchange(told, true)) {
      on_interruption(absl::StrCat("cannot reach the coordinator at ", impl_->address,
                                   "; trying again for ", absl::FormatDuration(patience)));
    }
    if (!impl_->AwaitConnection(give_up)) return job;
  }
}

absl::StatusOr<std::vector<v1::Job>> JobClient::ListJobs() {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  while (true) {
    v1::ListJobsResponse response;
    SHERD_RETURN_IF_ERROR(
        ToStatus(impl_->Call(&v1::JobService::Stub::ListJobs, request, response), impl_->address));
    jobs.insert(jobs.end(), response.jobs().begin(), response.jobs().end());
    // A list that does not go down goes round.
    const bool more =
        response.next() > 0 && (request.next() == 0 || response.next() < request.next());
    if (!more) return jobs;
    request.set_next(response.next());
  }
}

absl::StatusOr<v1::Job> JobClient::Cancel(const std::string& job_id) {
  v1::CancelRequest request;
  request.set_job_id(job_id);
  v1::CancelResponse response;
  SHERD_RETURN_IF_ERROR(
      ToStatus(impl_->Call(&v1::JobService::Stub::Cancel, request, response), impl_->address));
  return response.job();
}

absl::StatusOr<std::vector<v1::Worker>> JobClient::ListWorkers() {
  v1::ListWorkersResponse response;
  SHERD_RETURN_IF_ERROR(
      ToStatus(impl_->Call(&v1::JobService::Stub::ListWorkers, v1::ListWorkersRequest(), response),
               impl_->address));
  return std::vector<v1::Worker>(response.workers().begin(), response.workers().end());
}

absl::StatusOr<v1::Worker> JobClient::Drain(const std::string& worker_id) {
  v1::DrainRequest request;
  request.set_worker_id(worker_id);
  v1::DrainResponse response;
  SHERD_RETURN_IF_ERROR(
      ToStatus(impl_->Call(&v1::JobService::Stub::Drain, request, response), impl_->address));
  return response.worker();
}

absl::Status JobClient::Watch(const std::string& job_id, absl::Duration patience,
                              const WatchCallbacks& callbacks) {
  int64_t after = 0;
  bool done = false;
  bool told = false;
  absl::Time give_up = absl::Now() + patience;
  while (true) {
    const int64_t before = after;
    const grpc::Status status = impl_->ReadFeed(job_id, after, done, callbacks);
    if (done) return absl::OkStatus();
    if (impl_->stopped()) return absl::CancelledError("watching was stopped");
    if (IsVerdict(status)) return ToStatus(status, impl_->address);
    if (after != before) {
      give_up = absl::Now() + patience;
      told = false;
    }
    if (!told) {
      callbacks.on_interruption(absl::StrCat("lost the coordinator at ", impl_->address,
                                             "; trying again for ",
                                             absl::FormatDuration(patience)));
      told = true;
    }
    if (!impl_->AwaitConnection(give_up)) {
      if (impl_->stopped()) return absl::CancelledError("watching was stopped");
      return ToStatus(status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                                 "the job's feed ended before the job")
                                  : status,
                      impl_->address);
    }
  }
}

void JobClient::StopWatching() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->stop = true;
  if (impl_->watching != nullptr) impl_->watching->TryCancel();
}

}  // namespace sherd
