#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace sherd {

// Answers gRPC health checks (grpc.health.v1) on a port of its own, in plain text, for probes that
// have no certificate; it answers nothing else. The process as a whole, service "", serves as long
// as this lives. Thread-safe.
class HealthServer {
 public:
  // `address` is "HOST:PORT"; port 0 takes a free one. kUnavailable, naming the address, when it is
  // taken or not of this host.
  static absl::StatusOr<std::unique_ptr<HealthServer>> Start(const std::string& address);
  virtual ~HealthServer() = default;
  // "HOST:PORT" with the port that is served.
  virtual std::string address() const = 0;
  // From now on checks of `service` answer so.
  virtual void Set(const std::string& service, bool serving) = 0;
};

}  // namespace sherd
