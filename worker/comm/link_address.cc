#include "worker/comm/link_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "worker/comm/file_descriptor.h"

namespace sherd {
namespace {

constexpr absl::string_view kUnixScheme = "unix-abstract:";
constexpr absl::string_view kTcpScheme = "tcp:";

struct HostAndPort {
  std::string host;  // without brackets
  int port = -1;     // -1: the text is no HOST:PORT
};

HostAndPort Split(absl::string_view text) {
  HostAndPort parts;
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return parts;
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) return parts;
  int port = -1;
  if (host.empty() || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return parts;
  }
  parts.host = std::string(host);
  parts.port = port;
  return parts;
}

// The first address of `host`; length 0 when it has none.
LinkAddress LookUp(const std::string& host, int port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  LinkAddress address;
  if (::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) return address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

LinkAddress ParseUnix(absl::string_view name) {
  LinkAddress parsed;
  auto& address = reinterpret_cast<sockaddr_un&>(parsed.storage);
  if (name.empty() || name.size() + 1 > sizeof(address.sun_path)) return parsed;
  address.sun_family = AF_UNIX;
  // An abstract name starts with a zero byte and does not end with one.
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  parsed.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return parsed;
}

std::string NumericHost(const LinkAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* const bytes =
      address.family() == AF_INET6
          ? static_cast<const void*>(
                &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr;
  return ::inet_ntop(address.family(), bytes, text, sizeof(text)) == nullptr ? "" : text;
}

}  // namespace

absl::StatusOr<LinkAddress> ParseLinkAddress(absl::string_view text) {
  absl::string_view rest = text;
  LinkAddress address;
  if (absl::ConsumePrefix(&rest, kUnixScheme)) {
    address = ParseUnix(rest);
  } else if (absl::ConsumePrefix(&rest, kTcpScheme)) {
    const HostAndPort parts = Split(rest);
    if (parts.port > 0) address = LookUp(parts.host, parts.port, AI_NUMERICHOST);
  }
  if (address.length > 0) return address;
  return absl::InvalidArgumentError(absl::StrCat("data address '", text, "' is not of the form ",
                                                 kUnixScheme, "NAME or ", kTcpScheme,
                                                 "HOST:PORT with a numeric HOST"));
}

std::string FormatTcpAddress(const LinkAddress& address) {
  const bool v6 = address.family() == AF_INET6;
  const uint16_t port = v6 ? reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port
                           : reinterpret_cast<const sockaddr_in&>(address.storage).sin_port;
  return absl::StrCat(kTcpScheme, v6 ? "[" : "", NumericHost(address), v6 ? "]:" : ":",
                      ntohs(port));
}

absl::StatusOr<LinkAddress> ResolveHost(const std::string& host) {
  LinkAddress address = LookUp(host, 0, 0);
  if (address.length > 0) return address;
  return absl::InvalidArgumentError(absl::StrCat("'", host, "' is no host that has an address"));
}

absl::StatusOr<std::string> HostTowards(const std::string& host_and_port) {
  const HostAndPort parts = Split(host_and_port);
  const LinkAddress target = LookUp(parts.host, std::max(1, parts.port), 0);
  if (parts.port < 0 || target.length == 0) {
    return absl::UnavailableError(absl::StrCat("'", host_and_port, "' has no address"));
  }
  // Connecting a datagram socket chooses the way and sends nothing.
  const FileDescriptor socket(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  LinkAddress own;
  own.length = sizeof(own.storage);
  if (!socket.valid() || ::connect(socket.get(), target.get(), target.length) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("no way to ", host_and_port, ": ", std::strerror(errno)));
  }
  return NumericHost(own);
}

}  // namespace sherd
