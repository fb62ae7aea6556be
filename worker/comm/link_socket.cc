#include "worker/comm/link_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/link_address.h"

namespace sherd {
namespace {

constexpr char kOwnLackUrl[] = "sherd.dev/own_lack";

absl::Status ErrnoStatus(absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(errno)));
}

int IntegerOption(int socket, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  ::getsockopt(socket, SOL_SOCKET, option, &value, &length);
  return value;
}

// Messages are small and waited for. A peer's machine that answers nothing for five seconds is
// gone: the control link of a pair is silent otherwise, so that it is probed.
void SendAtOnceAndProbe(int link) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(link, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool OutOfResources() {
  return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
}

absl::StatusOr<FileDescriptor> NewSocket(int family) {
  const int kind = family == AF_UNIX ? SOCK_SEQPACKET : SOCK_STREAM;
  FileDescriptor socket(::socket(family, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    const bool own = OutOfResources();
    absl::Status error = ErrnoStatus(absl::StatusCode::kResourceExhausted, "socket");
    if (own) error.SetPayload(kOwnLackUrl, absl::Cord());
    return error;
  }
  if (family != AF_UNIX) SendAtOnceAndProbe(socket.get());
  return socket;
}

absl::StatusOr<FileDescriptor> ListenAt(const LinkAddress& address, absl::string_view name) {
  SHERD_ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket(address.family()));
  if (::bind(socket.get(), address.get(), address.length) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return ErrnoStatus(absl::StatusCode::kUnavailable, absl::StrCat("listen at ", name));
  }
  return socket;
}

bool BelongsToThisUser(int link) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return ::getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace

bool IsTcpLink(int link) { return IntegerOption(link, SO_DOMAIN) != AF_UNIX; }

absl::StatusOr<FileDescriptor> ListenForLinks(std::string* address) {
  // Random, so that no address of an earlier process is ever used again.
  std::array<char, 16> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return ErrnoStatus(absl::StatusCode::kInternal, "getrandom");
  }
  *address = absl::StrCat("unix-abstract:sherd-",
                          absl::BytesToHexString(absl::string_view(random.data(), random.size())));
  SHERD_ASSIGN_OR_RETURN(const LinkAddress parsed, ParseLinkAddress(*address));
  return ListenAt(parsed, *address);
}

absl::StatusOr<FileDescriptor> ListenForTcpLinks(const std::string& host, std::string* address) {
  SHERD_ASSIGN_OR_RETURN(LinkAddress bound, ResolveHost(host));
  SHERD_ASSIGN_OR_RETURN(FileDescriptor socket, ListenAt(bound, host));
  bound.length = sizeof(bound.storage);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length) !=
      0) {
    return ErrnoStatus(absl::StatusCode::kInternal, "getsockname");
  }
  *address = FormatTcpAddress(bound);
  return socket;
}

absl::StatusOr<FileDescriptor> AcceptLink(int listener) {
  FileDescriptor link(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (link.valid() && IsTcpLink(link.get())) {
    SendAtOnceAndProbe(link.get());
    return link;
  }
  if (link.valid()) return BelongsToThisUser(link.get()) ? std::move(link) : FileDescriptor();
  if (OutOfResources()) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted, "accept");
  }
  return FileDescriptor();
}

absl::StatusOr<FileDescriptor> ConnectLink(absl::string_view address) {
  SHERD_ASSIGN_OR_RETURN(const LinkAddress parsed, ParseLinkAddress(address));
  SHERD_ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket(parsed.family()));
  if (::connect(socket.get(), parsed.get(), parsed.length) == 0 || errno == EINPROGRESS) {
    return socket;
  }
  // At an abstract address there is somebody or there is not; on a network much else can fail.
  const bool try_again = parsed.family() == AF_UNIX ? errno == EAGAIN || errno == EINTR ||
                                                          errno == ENOBUFS || errno == ENOMEM
                                                    : errno != ECONNREFUSED;
  return ErrnoStatus(
      try_again ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable, address);
}

bool IsOwnLack(const absl::Status& error) { return error.GetPayload(kOwnLackUrl).has_value(); }

LinkAttempt CheckAttempt(int link) {
  pollfd waiting = {link, POLLOUT, 0};
  if (::poll(&waiting, 1, 0) == 0) return LinkAttempt::kUnderWay;
  const int error = IntegerOption(link, SO_ERROR);
  if (error == ECONNREFUSED) return LinkAttempt::kRefused;
  return error == 0 ? LinkAttempt::kConnected : LinkAttempt::kFailed;
}

}  // namespace sherd
