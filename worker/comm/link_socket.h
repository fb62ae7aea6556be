#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_message.h"

namespace sherd {

// Sockets of data links: abstract Unix addresses, message boundaries kept, descriptors passed
// along. All are non-blocking and closed on exec. Addresses are "unix-abstract:NAME".

// A socket that listens at a new random address, which is written to `address`.
absl::StatusOr<FileDescriptor> ListenForLinks(std::string* address);

// The next waiting connection; empty when there is none. A connection of another user is closed:
// abstract addresses have no permissions of their own. kResourceExhausted without descriptors.
absl::StatusOr<FileDescriptor> AcceptLink(int listener);

// kUnavailable when nobody listens there, which means that the process that did has ended;
// kResourceExhausted when its queue is full or descriptors ran out (try again);
// kInvalidArgument for an address of another kind.
absl::StatusOr<FileDescriptor> ConnectLink(absl::string_view address);

// Sends one message, with a copy of the descriptor `attached` unless it is -1. kUnavailable when
// the peer is gone, kResourceExhausted when the socket is full.
absl::Status SendLinkMessage(int link, const LinkMessage& message, int attached = -1);

enum class LinkInput { kMessage, kNothing, kClosed, kGarbage };
struct ReceivedLinkMessage {
  LinkInput input = LinkInput::kNothing;
  LinkMessage message;
  FileDescriptor attached;
};
// Takes the next message. kNothing: none yet; kClosed: none will come.
ReceivedLinkMessage ReceiveLinkMessage(int link);

}  // namespace sherd
