#include "worker/comm/link_socket.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"

namespace sherd {
namespace {

constexpr absl::string_view kScheme = "unix-abstract:";

absl::Status ErrnoStatus(absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(errno)));
}

struct AbstractAddress {
  sockaddr_un address = {};
  socklen_t length = 0;
};

absl::StatusOr<AbstractAddress> ParseAddress(absl::string_view text) {
  AbstractAddress parsed;
  absl::string_view name = text;
  if (!absl::ConsumePrefix(&name, kScheme) || name.empty() ||
      name.size() + 1 > sizeof(parsed.address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data address '", text, "' is not of the form ", kScheme, "NAME"));
  }
  parsed.address.sun_family = AF_UNIX;
  // An abstract name starts with a zero byte and does not end with one.
  std::memcpy(parsed.address.sun_path + 1, name.data(), name.size());
  parsed.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return parsed;
}

absl::StatusOr<FileDescriptor> NewSocket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ErrnoStatus(absl::StatusCode::kResourceExhausted, "socket");
  return socket;
}

bool BelongsToThisUser(int link) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return ::getsockopt(link, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == ::geteuid();
}

union AttachedDescriptor {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

FileDescriptor TakeAttached(msghdr& message) {
  FileDescriptor attached;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(part), sizeof(descriptor));
    attached = FileDescriptor(descriptor);
  }
  return attached;
}

}  // namespace

absl::StatusOr<FileDescriptor> ListenForLinks(std::string* address) {
  // Random, so that no address of an earlier process is ever used again.
  std::array<char, 16> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return ErrnoStatus(absl::StatusCode::kInternal, "getrandom");
  }
  *address = absl::StrCat(kScheme, "sherd-",
                          absl::BytesToHexString(absl::string_view(random.data(), random.size())));
  SHERD_ASSIGN_OR_RETURN(const AbstractAddress parsed, ParseAddress(*address));
  SHERD_ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&parsed.address), parsed.length) !=
          0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return ErrnoStatus(absl::StatusCode::kUnavailable, absl::StrCat("listen at ", *address));
  }
  return socket;
}

absl::StatusOr<FileDescriptor> AcceptLink(int listener) {
  FileDescriptor link(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (link.valid()) return BelongsToThisUser(link.get()) ? std::move(link) : FileDescriptor();
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
    return ErrnoStatus(absl::StatusCode::kResourceExhausted, "accept");
  }
  return FileDescriptor();
}

absl::StatusOr<FileDescriptor> ConnectLink(absl::string_view address) {
  SHERD_ASSIGN_OR_RETURN(const AbstractAddress parsed, ParseAddress(address));
  SHERD_ASSIGN_OR_RETURN(FileDescriptor socket, NewSocket());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&parsed.address), parsed.length) ==
      0) {
    return socket;
  }
  const bool try_again = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM;
  return ErrnoStatus(
      try_again ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable, address);
}

absl::Status SendLinkMessage(int link, const LinkMessage& message, int attached) {
  std::string bytes = EncodeLinkMessage(message);
  iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  AttachedDescriptor control = {};
  if (attached >= 0) {
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof(control.bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &attached, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(link, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  const bool full = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS;
  return ErrnoStatus(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
                     "send on a data link");
}

ReceivedLinkMessage ReceiveLinkMessage(int link) {
  ReceivedLinkMessage received;
  std::array<char, kMaxLinkMessageBytes> bytes;
  iovec part = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  AttachedDescriptor control = {};
  msghdr header = {};
  ssize_t length;
  // A peer that closes with unread messages leaves one ECONNRESET ahead of what it sent before.
  int resets = 0;
  do {
    header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof(control.bytes);
    length = ::recvmsg(link, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (length < 0 && (errno == EINTR || (errno == ECONNRESET && ++resets < 4)));
  if (length < 0) {
    received.input = errno == EAGAIN ? LinkInput::kNothing : LinkInput::kClosed;
    return received;
  }
  received.attached = TakeAttached(header);
  if (length == 0) {
    received.input = LinkInput::kClosed;
    return received;
  }
  auto message = DecodeLinkMessage(absl::string_view(bytes.data(), static_cast<size_t>(length)));
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || !message.ok()) {
    received.input = LinkInput::kGarbage;
    return received;
  }
  received.input = LinkInput::kMessage;
  received.message = *std::move(message);
  return received;
}

}  // namespace sherd
