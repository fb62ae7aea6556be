#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sherd {

// Where data links are accepted: "unix-abstract:NAME" or "tcp:HOST:PORT". HOST is a numeric
// address, an IPv6 one in brackets.
struct LinkAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// kInvalidArgument for an address of another form.
absl::StatusOr<LinkAddress> ParseLinkAddress(absl::string_view text);

// Of an IPv4 or IPv6 address: "tcp:10.0.0.1:4711", "tcp:[fd00::1]:4711".
std::string FormatTcpAddress(const LinkAddress& address);

// Port 0 of a host by name or numeric address. kInvalidArgument, naming it, when it has none.
absl::StatusOr<LinkAddress> ResolveHost(const std::string& host);

// The numeric address under which this host reaches, and so is reached by, those near
// `host_and_port` ("HOST:PORT"). kUnavailable when there is no way to it. Sends nothing but the
// query for the name.
absl::StatusOr<std::string> HostTowards(const std::string& host_and_port);

}  // namespace sherd
