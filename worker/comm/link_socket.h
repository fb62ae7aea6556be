#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/comm/file_descriptor.h"
#include "worker/comm/link_message.h"

namespace sherd {

// Sockets of data links, at the addresses of link_address.h: abstract Unix ones, which keep message
// boundaries and pass descriptors along, and TCP, where a message follows its length (u32, little-
// endian). All are non-blocking and closed on exec.

// A socket that listens at a new random abstract address, which is written to `address`.
absl::StatusOr<FileDescriptor> ListenForLinks(std::string* address);
// A socket that listens at a free TCP port of `host`, one of this machine's; its numeric address is
// written to `address`. kInvalidArgument when the host has no address, kUnavailable, naming it,
// when it is not this machine's.
absl::StatusOr<FileDescriptor> ListenForTcpLinks(const std::string& host, std::string* address);

// The next waiting connection; empty when there is none. A connection of another user to an
// abstract address is closed: these have no permissions of their own. kResourceExhausted without
// descriptors.
absl::StatusOr<FileDescriptor> AcceptLink(int listener);

// Connects, or begins to. kUnavailable when nobody listens there, which means that the process that
// did has ended; kResourceExhausted when its queue is full or there is no way to it (try again),
// or, by IsOwnLack, when this process can open no socket; kInvalidArgument for an address of
// another kind.
absl::StatusOr<FileDescriptor> ConnectLink(absl::string_view address);
// Whether it is this process that has no descriptors or memory left for a socket: no peer is to
// blame, and no Goodbye says it.
bool IsOwnLack(const absl::Status& error);
// Whether ConnectLink's connection has come about. kRefused as kUnavailable there, kFailed as
// kResourceExhausted.
enum class LinkAttempt { kConnected, kUnderWay, kRefused, kFailed };
LinkAttempt CheckAttempt(int link);

// Else it is a Unix one.
bool IsTcpLink(int link);

// Sends one message, over an abstract address with a copy of the descriptor `attached` unless it is
// -1. kUnavailable when the peer is gone, kResourceExhausted when the socket is full; then it
// cannot be used any more.
absl::Status SendLinkMessage(int link, const LinkMessage& message, int attached = -1);
// Bytes on the wire of a message over TCP.
int64_t TcpMessageBytes(const LinkMessage& message);

enum class LinkInput { kMessage, kNothing, kClosed, kGarbage };
struct ReceivedLinkMessage {
  LinkInput input = LinkInput::kNothing;
  LinkMessage message;
  FileDescriptor attached;
};
// Takes the next message, and nothing behind it. kNothing: none is whole yet; kClosed: none will
// come.
ReceivedLinkMessage ReceiveLinkMessage(int link);

// Closes the link so that what was sent last arrives: a socket that is closed with unread input
// takes back what it has not delivered.
void CloseGently(FileDescriptor& link);

}  // namespace sherd
