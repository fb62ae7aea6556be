#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/deadline.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_message.h"

namespace sherd {

// A link over TCP on which two processes take turns, with messages and with bytes that lie behind
// them. Calls block. Not thread-safe.
// Errors of all calls: kAborted when one of `ends` is readable, or the peer's epoch has ended;
// kDeadlineExceeded when nothing has moved for kPatience; kUnavailable when the peer is gone, or
// said what cannot be; else what the peer's Goodbye says.
class LinkStream {
 public:
  // How long a peer may move nothing in the middle of something.
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  // `ends` are polled, and must stay open as long as the stream.
  LinkStream(FileDescriptor link, std::vector<int> ends)
      : link_(std::move(link)), ends_(std::move(ends)) {}
  // Connects to "tcp:HOST:PORT". kUnavailable when nobody listens there; kDeadlineExceeded;
  // kResourceExhausted, by IsOwnLack, at once when this process can open no socket.
  static absl::StatusOr<LinkStream> Connect(const std::string& address, std::vector<int> ends,
                                            const Deadline& deadline);
  LinkStream(LinkStream&&) = default;

  absl::Status Send(const LinkMessage& message);
  // While the peer has nothing to say; what it says meanwhile is why it takes no more.
  absl::Status SendBytes(const std::byte* data, int64_t bytes);

  // The next message, which must be a T. Waits `patience` for its first byte.
  template <typename T>
  absl::StatusOr<T> Receive(absl::Duration patience = kPatience) {
    absl::StatusOr<LinkMessage> message = ReceiveAny(patience);
    if (!message.ok()) return message.status();
    if (T* expected = std::get_if<T>(&*message)) return std::move(*expected);
    return OutOfOrder(*message);
  }
  // `taken` hears of every piece that has come, in order.
  absl::Status ReceiveBytes(std::byte* to, int64_t bytes,
                            absl::FunctionRef<void(const std::byte* piece, int64_t bytes)> taken);

  // Says why, if it is not that the peer is gone, and closes.
  void Close(const absl::Status& why);

 private:
  absl::StatusOr<LinkMessage> ReceiveAny(absl::Duration patience);
  static absl::Status OutOfOrder(const LinkMessage& message);
  // Waits for `events`; what came of them.
  absl::StatusOr<short> Wait(short events, absl::Duration patience) const;
  absl::Status CheckEnds() const;
  // Why the peer takes no more.
  absl::Status PeersReason();
  // A message has come in part.
  bool HasInput() const;

  FileDescriptor link_;
  std::vector<int> ends_;
};

}  // namespace sherd
