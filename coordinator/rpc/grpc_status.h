#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace sherd {

// The same code and message; payloads, whose URLs must be those of message types, become the
// details of a v1.RpcStatus, the wire form of google.rpc.Status, so that any client decodes them.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace sherd
