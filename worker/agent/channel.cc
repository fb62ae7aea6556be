#include "worker/agent/channel.h"

#include <algorithm>

#include "common/limits.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeCoordinatorChannel(
    const SecurityOptions& security, const std::string& coordinator, absl::Duration connect_limit) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepaliveInterval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // This is also the longest that one attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, std::max(1, Milliseconds(connect_limit)));
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMostCoordinatorMessageBytes);
  return MakeChannel(security, coordinator, arguments);
}

absl::Status Authorize(const SecurityOptions& security, grpc::ClientContext& context) {
  SHERD_ASSIGN_OR_RETURN(const std::string authorization, ReadAuthorization(security));
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  return absl::OkStatus();
}

absl::Status ToAbsl(const grpc::Status& status) {
  std::string message = status.error_message();
  // gRPC wraps "Connection refused" in four layers of its own.
  const size_t cause = message.rfind("Failed to connect to remote host: ");
  if (cause != std::string::npos) message.erase(0, cause);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

}  // namespace sherd
