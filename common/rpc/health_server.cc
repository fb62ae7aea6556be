#include "common/rpc/health_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

class GrpcHealthServer final : public HealthServer {
 public:
  ~GrpcHealthServer() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  absl::Status Listen(const std::string& address) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Whatever else is called is UNIMPLEMENTED; a server of nothing but health would not start.
    builder.RegisterCallbackGenericService(&nothing_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot answer health checks on ", address,
          ": the port is taken or the address is not of this host; give another --health"));
    }
    address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  void Set(const std::string& service, bool serving) override {
    server_->GetHealthCheckService()->SetServingStatus(service, serving);
  }

 private:
  grpc::CallbackGenericService nothing_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(const std::string& address) {
  grpc::EnableDefaultHealthCheckService(true);
  auto server = std::make_unique<GrpcHealthServer>();
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  return std::unique_ptr<HealthServer>(std::move(server));
}

}  // namespace sherd
