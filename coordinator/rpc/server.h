#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/security.h"
#include "coordinator/runtime/event_loop.h"
#include "prometheus/registry.h"

namespace sherd {

struct ServerOptions {
  // "HOST:PORT"; port 0 takes a free one.
  std::string address = {};
  SecurityOptions security = {};
  // The file of tokens (access.h); "": whoever reaches the server may do everything.
  std::string tokens = {};
};

// The coordinator's gRPC server, with health checks and reflection. Thread-safe.
class Server {
 public:
  // kUnavailable, naming the address, when it is taken or not of this host; kInvalidArgument as
  // MakeServerCredentials and Access say.
  // `loop` and `registry` must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       EventLoop& loop,
                                                       prometheus::Registry& registry);
  // Ends what is open, within a second.
  virtual ~Server() = default;
  // "HOST:PORT" with the port that is served.
  virtual std::string address() const = 0;
};

}  // namespace sherd
