#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/security.h"

namespace sherd {

// A channel that shares its connection with no other one, so that the caller's back-off is the only
// one. It pings an idle coordinator every kKeepaliveInterval; the server must allow that (F37). A
// connection is given up after `connect_limit`. Errors as of MakeChannel in common/rpc/security.h.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeCoordinatorChannel(
    const SecurityOptions& security, const std::string& coordinator, absl::Duration connect_limit);

// Has a call carry the token. Errors as of ReadAuthorization in common/rpc/security.h.
absl::Status Authorize(const SecurityOptions& security, grpc::ClientContext& context);

// The server must accept pings without data at this interval: GRPC_ARG_HTTP2_MIN_RECV_PING_
// INTERVAL_WITHOUT_DATA_MS below it and GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS.
inline constexpr absl::Duration kKeepaliveInterval = absl::Seconds(5);
// A connection whose ping is not answered for this long is dead.
inline constexpr absl::Duration kKeepaliveTimeout = absl::Seconds(5);

// The code and the message, shortened to its cause.
absl::Status ToAbsl(const grpc::Status& status);

}  // namespace sherd
