#include "worker/comm/link_stream.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

// Moved by one call: what lies in the processor's cache is checked there.
constexpr int64_t kPieceBytes = 256 << 10;
constexpr absl::Duration kReconnectAfter = absl::Milliseconds(20);
// What the peer said before it closed may come a moment after its end is seen.
constexpr absl::Duration kReasonPatience = absl::Milliseconds(200);

int PollMilliseconds(absl::Duration wait) {
  if (wait == absl::InfiniteDuration()) return -1;
  return static_cast<int>(absl::ToInt64Milliseconds(
      std::clamp(absl::Ceil(wait, absl::Milliseconds(1)), absl::ZeroDuration(), absl::Hours(1))));
}

bool NothingNow() {
  return errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM;
}

absl::Status Gone() { return absl::UnavailableError("the process went away"); }

}  // namespace

absl::StatusOr<short> LinkStream::Wait(short events, absl::Duration patience) const {
  std::vector<pollfd> polled = {{link_.get(), events, 0}};
  for (const int end : ends_) polled.push_back({end, POLLIN, 0});
  const Deadline deadline(patience);
  while (true) {
    const absl::Duration left =
        patience == absl::InfiniteDuration() ? absl::InfiniteDuration() : deadline.left();
    const int ready = ::poll(polled.data(), polled.size(), PollMilliseconds(left));
    SHERD_RETURN_IF_ERROR(CheckEnds());
    if (ready > 0 && polled[0].revents != 0) return polled[0].revents;
    if (ready == 0 && deadline.passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the process moved nothing for ", absl::FormatDuration(patience)));
    }
  }
}

absl::Status LinkStream::CheckEnds() const {
  for (const int end : ends_) {
    pollfd polled = {end, POLLIN, 0};
    if (::poll(&polled, 1, 0) > 0) return absl::AbortedError("the epoch has ended here");
  }
  return absl::OkStatus();
}

bool LinkStream::HasInput() const {
  int bytes = 0;
  return ::ioctl(link_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
}

absl::StatusOr<LinkStream> LinkStream::Connect(const std::string& address, std::vector<int> ends,
                                               const Deadline& deadline) {
  LinkStream stream(FileDescriptor(), std::move(ends));
  while (true) {
    absl::StatusOr<FileDescriptor> link = ConnectLink(address);
    if (link.ok()) {
      stream.link_ = *std::move(link);
      SHERD_RETURN_IF_ERROR(stream.Wait(POLLOUT, deadline.left()).status());
      const LinkAttempt attempt = CheckAttempt(stream.link_.get());
      if (attempt == LinkAttempt::kConnected) return stream;
      if (attempt == LinkAttempt::kRefused) return Gone();
      stream.link_.Close();
    } else if (!absl::IsResourceExhausted(link.status()) || IsOwnLack(link.status())) {
      return link.status();
    }
    if (deadline.passed()) return absl::DeadlineExceededError("there is no way to it");
    // No descriptor: only the ends are waited for.
    const absl::Status waited = stream.Wait(0, kReconnectAfter).status();
    if (!absl::IsDeadlineExceeded(waited)) return waited;
  }
}

absl::Status LinkStream::Send(const LinkMessage& message) {
  const std::string encoded = EncodeLinkMessage(message);
  std::string bytes;
  for (size_t byte = 0; byte < sizeof(uint32_t); ++byte) {
    bytes.push_back(static_cast<char>(encoded.size() >> (8 * byte)));
  }
  bytes += encoded;
  return SendBytes(reinterpret_cast<const std::byte*>(bytes.data()),
                   static_cast<int64_t>(bytes.size()));
}

absl::Status LinkStream::SendBytes(const std::byte* data, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t sent =
        ::send(link_.get(), data, static_cast<size_t>(std::min(bytes, kPieceBytes)),
               MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      SHERD_RETURN_IF_ERROR(CheckEnds());
      data += sent;
      bytes -= sent;
      continue;
    }
    if (!NothingNow()) return PeersReason();
    SHERD_ASSIGN_OR_RETURN(const short events, Wait(POLLIN | POLLOUT, kPatience));
    if ((events & POLLIN) != 0) return PeersReason();
  }
  return absl::OkStatus();
}

absl::Status LinkStream::PeersReason() {
  const absl::StatusOr<LinkMessage> said = ReceiveAny(kReasonPatience);
  if (said.ok()) return OutOfOrder(*said);
  return absl::IsDeadlineExceeded(said.status()) ? Gone() : said.status();
}

absl::Status LinkStream::OutOfOrder(const LinkMessage& message) {
  const auto* goodbye = std::get_if<LinkGoodbye>(&message);
  if (goodbye == nullptr) return absl::UnavailableError("the process said what was not its turn");
  if (goodbye->code == absl::StatusCode::kOk) return Gone();
  return absl::Status(goodbye->code, goodbye->text);
}

absl::StatusOr<LinkMessage> LinkStream::ReceiveAny(absl::Duration patience) {
  while (true) {
    ReceivedLinkMessage received = ReceiveLinkMessage(link_.get());
    switch (received.input) {
      case LinkInput::kMessage:
        return std::move(received.message);
      case LinkInput::kClosed:
        return Gone();
      case LinkInput::kGarbage:
        return absl::UnavailableError("the process sent what is no message");
      case LinkInput::kNothing:
        break;
    }
    // Who has begun a message ends it soon.
    const absl::Duration wait = HasInput() ? std::min(patience, kPatience) : patience;
    SHERD_RETURN_IF_ERROR(Wait(POLLIN | POLLRDHUP, wait).status());
  }
}

absl::Status LinkStream::ReceiveBytes(
    std::byte* to, int64_t bytes,
    absl::FunctionRef<void(const std::byte* piece, int64_t bytes)> taken) {
  while (bytes > 0) {
    const ssize_t got =
        ::recv(link_.get(), to, static_cast<size_t>(std::min(bytes, kPieceBytes)), MSG_DONTWAIT);
    if (got > 0) {
      SHERD_RETURN_IF_ERROR(CheckEnds());
      taken(to, got);
      to += got;
      bytes -= got;
      continue;
    }
    if (got == 0 || !NothingNow()) return Gone();
    SHERD_RETURN_IF_ERROR(Wait(POLLIN, kPatience).status());
  }
  return absl::OkStatus();
}

void LinkStream::Close(const absl::Status& why) {
  if (!link_.valid()) return;
  if (!absl::IsUnavailable(why)) {
    LinkGoodbye goodbye;
    goodbye.code = why.code();
    goodbye.text = std::string(why.message());
    // Best effort: a peer that does not read learns it by the link's end.
    SendLinkMessage(link_.get(), goodbye).IgnoreError();
  }
  CloseGently(link_);
}

}  // namespace sherd
