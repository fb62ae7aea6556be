#include "coordinator/rpc/worker_service.h"

#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/session_reactor.h"
#include "coordinator/runtime/worker_claims.h"

namespace sherd {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* WorkerService::Session(
    grpc::CallbackServerContext*) {
  return new SessionReactor(loop_, counter_);  // deletes itself when the stream is over
}

grpc::Status WorkerService::ReportExit(grpc::ServerContext*, const v1::ReportExitRequest* request,
                                       v1::ReportExitResponse*) {
  if (const absl::Status status = CheckExit(*request); !status.ok()) {
    counter_.Count("ReportExit", status);
    return ToGrpcStatus(status);
  }
  const bool posted = loop_.Post(
      [request = *request](Controller& controller) { controller.fleet().ReportExit(request); },
      kPatience);
  const absl::Status status =
      posted ? absl::OkStatus() : absl::UnavailableError("the coordinator stops; try again later");
  counter_.Count("ReportExit", status);
  return ToGrpcStatus(status);
}

}  // namespace sherd
