#include "coordinator/rpc/job_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status_macros.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/runtime/invalid_fields.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);
// A worker looks at the job's files meanwhile.
constexpr absl::Duration kSubmitPatience = absl::Seconds(15);
// How soon a watcher that went away is noticed.
constexpr absl::Duration kWatchPatience = absl::Milliseconds(250);
constexpr int64_t kWatchChunk = 256;
constexpr size_t kLongestRequestId = 128;

// The request with its specification complete, or all that is wrong with it.
absl::StatusOr<v1::SubmitRequest> Complete(const v1::SubmitRequest& request) {
  v1::SubmitRequest complete = request;
  *complete.mutable_spec() = NormalizeJobSpec(request.spec());
  const size_t bytes = complete.spec().ByteSizeLong();
  if (bytes > kMostJobSpecBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job's specification has ", bytes, " bytes, at most ", kMostJobSpecBytes,
                     " are accepted; name fewer or larger data files"));
  }
  v1::InvalidFields invalid = ValidateJobSpec(complete.spec());
  // The job's id becomes the default, so that no two jobs share a directory unasked.
  complete.mutable_spec()->mutable_checkpoint()->set_dir(request.spec().checkpoint().dir());
  const std::string& id = request.request_id();
  const bool printable = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
  if (id.empty() || id.size() > kLongestRequestId || !printable) {
    v1::InvalidField* field = invalid.add_fields();
    field->set_field("request_id");
    field->set_description(absl::StrCat("give any unique string of 1 to ", kLongestRequestId,
                                        " printable bytes, so that a retry makes no second job"));
  }
  if (invalid.fields_size() > 0) return InvalidFieldsError(invalid);
  return complete;
}

}  // namespace

grpc::Status JobService::Finish(const char* method, const absl::Status& status) {
  counter_.Count(method, status);
  return ToGrpcStatus(status);
}

template <typename T>
grpc::Status JobService::Forward(const char* method, const grpc::ServerContext& context, Role role,
                                 absl::Duration patience, T* response,
                                 std::function<void(Controller&, Reply<T>)> question) {
  if (const absl::Status allowed = access_.Check(context, role); !allowed.ok()) {
    return Finish(method, allowed);
  }
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<T> answer = Ask<T>(loop_, patience, std::move(question));
  counter_.Took(method, absl::FromChrono(std::chrono::steady_clock::now() - start));
  if (answer.ok()) *response = *std::move(answer);
  return Finish(method, answer.status());
}

grpc::Status JobService::Submit(grpc::ServerContext* context, const v1::SubmitRequest* request,
                                v1::SubmitResponse* response) {
  if (const absl::Status allowed = access_.Check(*context, Role::kSubmit); !allowed.ok()) {
    return Finish("Submit", allowed);
  }
  absl::StatusOr<v1::SubmitRequest> complete = Complete(*request);
  if (!complete.ok()) return Finish("Submit", complete.status());
  return Forward<v1::SubmitResponse>(
      "Submit", *context, Role::kSubmit, kSubmitPatience, response,
      [request = *std::move(complete)](Controller& controller, Reply<v1::SubmitResponse> reply) {
        controller.jobs().Submit(request, std::move(reply));
      });
}

grpc::Status JobService::ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                                  v1::ListJobsResponse* response) {
  return Forward<v1::ListJobsResponse>(
      "ListJobs", *context, Role::kView, kPatience, response,
      [next = request->next()](Controller& controller, Reply<v1::ListJobsResponse> reply) {
        controller.jobs().ListJobs(next, std::move(reply));
      });
}

grpc::Status JobService::GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                                v1::GetJobResponse* response) {
  return Forward<v1::GetJobResponse>(
      "GetJob", *context, Role::kView, kPatience, response,
      [id = JobId(request->job_id())](Controller& controller, Reply<v1::GetJobResponse> reply) {
        controller.jobs().GetJob(id, std::move(reply));
      });
}

grpc::Status JobService::Cancel(grpc::ServerContext* context, const v1::CancelRequest* request,
                                v1::CancelResponse* response) {
  return Forward<v1::CancelResponse>(
      "Cancel", *context, Role::kSubmit, kPatience, response,
      [id = JobId(request->job_id())](Controller& controller, Reply<v1::CancelResponse> reply) {
        controller.jobs().Cancel(id, std::move(reply));
      });
}

grpc::Status JobService::ListWorkers(grpc::ServerContext* context, const v1::ListWorkersRequest*,
                                     v1::ListWorkersResponse* response) {
  return Forward<v1::ListWorkersResponse>(
      "ListWorkers", *context, Role::kView, kPatience, response,
      [](Controller& controller, Reply<v1::ListWorkersResponse> reply) {
        controller.jobs().ListWorkers(std::move(reply));
      });
}

grpc::Status JobService::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                               v1::DrainResponse* response) {
  return Forward<v1::DrainResponse>("Drain", *context, Role::kAdmin, kPatience, response,
                                    [id = WorkerId(request->worker_id())](
                                        Controller& controller, Reply<v1::DrainResponse> reply) {
                                      controller.jobs().Drain(id, std::move(reply));
                                    });
}

grpc::Status JobService::Watch(grpc::ServerContext* context, const v1::WatchRequest* request,
                               grpc::ServerWriter<v1::WatchResponse>* writer) {
  return Finish("Watch", Stream(*context, *request, *writer));
}

absl::Status JobService::Stream(grpc::ServerContext& context, const v1::WatchRequest& request,
                                grpc::ServerWriter<v1::WatchResponse>& writer) {
  int64_t after = request.after_sequence();
  while (!context.IsCancelled()) {
    // Again each time: a token that is withdrawn ends the watch.
    SHERD_RETURN_IF_ERROR(access_.Check(context, Role::kView));
    SHERD_ASSIGN_OR_RETURN(
        const FeedChunk chunk,
        Ask<FeedChunk>(
            loop_, kPatience,
            [id = JobId(request.job_id()), after](Controller& controller, Reply<FeedChunk> reply) {
              controller.jobs().ReadFeed(id, after, kWatchChunk, kWatchPatience, std::move(reply));
            }));
    for (const v1::JobEvent& entry : chunk.entries) {
      v1::WatchResponse response;
      *response.mutable_event() = entry;
      if (!writer.Write(response)) return absl::CancelledError("the watcher went away");
      after = entry.sequence();
    }
    if (chunk.ended) return absl::OkStatus();
  }
  return absl::CancelledError("the watcher went away");
}

}  // namespace sherd
