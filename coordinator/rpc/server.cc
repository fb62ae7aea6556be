#include "coordinator/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status_macros.h"
#include "coordinator/rpc/access.h"
#include "coordinator/rpc/job_service.h"
#include "coordinator/rpc/rpc_counter.h"
#include "coordinator/rpc/worker_service.h"

namespace sherd {
namespace {

constexpr int kMostReceivedBytes = 4 << 20;
constexpr std::chrono::milliseconds kGrace(500);

// A dead peer must not be kept for ever, and clients that ping, also between calls, must not be
// thrown out for it (F37: too_many_pings).
void AgreeOnKeepalive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 200);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

class GrpcServer final : public Server {
 public:
  GrpcServer(EventLoop& loop, prometheus::Registry& registry, std::unique_ptr<Access> access)
      : counter_(registry),
        access_(std::move(access)),
        jobs_(loop, counter_, *access_),
        workers_(loop, counter_, *access_) {}
  ~GrpcServer() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + kGrace);
    server_->Wait();
  }

  absl::Status Listen(const std::string& address,
                      const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials, &port);
    // Two coordinators must not share a port by accident (F28).
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    AgreeOnKeepalive(builder);
    builder.SetMaxReceiveMessageSize(kMostReceivedBytes);
    builder.SetMaxSendMessageSize(kMostCoordinatorMessageBytes);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&workers_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address,
                       ": the port is taken or the address is not of this host; give another "
                       "--listen address"));
    }
    address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
    server_->GetHealthCheckService()->SetServingStatus(true);
    for (const char* service :
         {v1::JobService::service_full_name(), v1::WorkerService::service_full_name()}) {
      server_->GetHealthCheckService()->SetServingStatus(service, true);
    }
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  RpcCounter counter_;
  const std::unique_ptr<Access> access_;
  JobService jobs_;
  WorkerService workers_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, EventLoop& loop,
                                                      prometheus::Registry& registry) {
  SHERD_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials,
                         MakeServerCredentials(options.security, options.address));
  std::unique_ptr<Access> access = Access::Open();
  if (!options.tokens.empty()) {
    SHERD_ASSIGN_OR_RETURN(access, Access::FromFile(options.tokens));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto server = std::make_unique<GrpcServer>(loop, registry, std::move(access));
  if (absl::Status status = server->Listen(options.address, credentials); !status.ok())
    return status;
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace sherd
