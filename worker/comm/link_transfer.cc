// What goes over the links of link_socket.h.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

constexpr size_t kLengthBytes = sizeof(uint32_t);

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

absl::Status NotSent(bool full) {
  return absl::Status(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
                      absl::StrCat("send on a data link: ", std::strerror(errno)));
}

absl::Status SendOverTcp(int link, const std::string& message) {
  std::string bytes;
  for (size_t byte = 0; byte < kLengthBytes; ++byte) {
    bytes.push_back(static_cast<char>(message.size() >> (8 * byte)));
  }
  bytes += message;
  ssize_t sent;
  do {
    sent = ::send(link, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return NotSent(sent >= 0 || errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM);
}

ReceivedLinkMessage Decoded(absl::string_view bytes) {
  ReceivedLinkMessage received;
  auto message = DecodeLinkMessage(bytes);
  received.input = message.ok() ? LinkInput::kMessage : LinkInput::kGarbage;
  if (message.ok()) received.message = *std::move(message);
  return received;
}

// Looks at what is there without taking it until the message is whole; meanwhile the socket is
// readable only when more has come.
ReceivedLinkMessage ReceiveOverTcp(int link) {
  ReceivedLinkMessage received;
  // Before looking: what comes before the end is there once the end is.
  pollfd end = {link, POLLRDHUP, 0};
  const bool ended = ::poll(&end, 1, 0) > 0;
  std::array<char, kLengthBytes + kMaxLinkMessageBytes> bytes;
  ssize_t there;
  do {
    there = ::recv(link, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  } while (there < 0 && errno == EINTR);
  if (there <= 0) {
    received.input = there < 0 && errno == EAGAIN ? LinkInput::kNothing : LinkInput::kClosed;
    return received;
  }
  size_t whole = kLengthBytes;
  if (static_cast<size_t>(there) >= kLengthBytes) {
    for (size_t byte = 0; byte < kLengthBytes; ++byte) {
      whole += static_cast<size_t>(static_cast<unsigned char>(bytes[byte])) << (8 * byte);
    }
  }
  if (whole > bytes.size()) {
    received.input = LinkInput::kGarbage;
    return received;
  }
  const bool complete =
      static_cast<size_t>(there) >= kLengthBytes && static_cast<size_t>(there) >= whole;
  const int wanted = complete ? 1 : static_cast<int>(std::max(whole, kLengthBytes));
  ::setsockopt(link, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
  if (!complete) {
    if (ended) received.input = LinkInput::kClosed;
    return received;
  }
  if (::recv(link, bytes.data(), whole, MSG_DONTWAIT) != static_cast<ssize_t>(whole)) {
    received.input = LinkInput::kClosed;
    return received;
  }
  return Decoded(absl::string_view(bytes.data() + kLengthBytes, whole - kLengthBytes));
}

}  // namespace

int64_t TcpMessageBytes(const LinkMessage& message) {
  return static_cast<int64_t>(kLengthBytes + EncodeLinkMessage(message).size());
}

absl::Status SendLinkMessage(int link, const LinkMessage& message, int attached) {
  std::string bytes = EncodeLinkMessage(message);
  if (IsTcpLink(link)) return SendOverTcp(link, bytes);
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
  return NotSent(errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS);
}

ReceivedLinkMessage ReceiveLinkMessage(int link) {
  if (IsTcpLink(link)) return ReceiveOverTcp(link);
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
  FileDescriptor attached = TakeAttached(header);
  if (length == 0) {
    received.input = LinkInput::kClosed;
    return received;
  }
  received = Decoded(absl::string_view(bytes.data(), static_cast<size_t>(length)));
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) received.input = LinkInput::kGarbage;
  if (received.input == LinkInput::kMessage) received.attached = std::move(attached);
  return received;
}

void CloseGently(FileDescriptor& link) {
  if (!link.valid()) return;
  ::shutdown(link.get(), SHUT_WR);
  std::array<char, 4096> unread;
  while (::recv(link.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
  }
  link.Close();
}

}  // namespace sherd
