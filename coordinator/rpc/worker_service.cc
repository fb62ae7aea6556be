#include "coordinator/rpc/worker_service.h"

#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/session_reactor.h"
#include "coordinator/runtime/worker_claims.h"

namespace sherd {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);

// A session that does not begin. Deletes itself.
class Refusal final : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* WorkerService::Session(
    grpc::CallbackServerContext* context) {
  if (const absl::Status allowed = access_.Check(*context, Role::kWorker); !allowed.ok()) {
    counter_.Count("Session", allowed);
    return new Refusal(allowed);
  }
  // Deletes itself when the stream is over.
  return new SessionReactor(loop_, counter_, access_, *context);
}

grpc::Status WorkerService::ReportExit(grpc::ServerContext* context,
                                       const v1::ReportExitRequest* request,
                                       v1::ReportExitResponse*) {
  absl::Status status = access_.Check(*context, Role::kWorker);
  if (status.ok()) status = CheckExit(*request);
  if (!status.ok()) {
    counter_.Count("ReportExit", status);
    return ToGrpcStatus(status);
  }
  const bool posted = loop_.Post(
      [request = *request](Controller& controller) { controller.fleet().ReportExit(request); },
      kPatience);
  status =
      posted ? absl::OkStatus() : absl::UnavailableError("the coordinator stops; try again later");
  counter_.Count("ReportExit", status);
  return ToGrpcStatus(status);
}

}  // namespace sherd
