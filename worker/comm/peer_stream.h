#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "worker/comm/file_descriptor.h"
#include "worker/comm/op_descriptor.h"

namespace sherd {

// What an operation sends to one peer and receives from it, in the order of the stream, behind the
// descriptors. Nothing else is on the wire: both sides derive the order from the operation.
//
// A reduction goes piece by piece. A part moves once `reduced` pieces are reduced here: before that
// it is not there yet, or there is no room for it.
struct OutgoingPart {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t reduced = 0;
  bool ends_message = false;
};
struct IncomingPart {
  std::byte* to = nullptr;
  int64_t bytes = 0;
  int64_t reduced = 0;
  bool leaf = false;  // the peer's part of the next piece to be reduced
};
struct PeerTraffic {
  std::vector<OutgoingPart> out;
  std::vector<IncomingPart> in;
};

// A stream to one peer and how far an operation has come on it. Never blocks. Not thread-safe.
class PeerStream {
 public:
  explicit PeerStream(FileDescriptor socket) : socket_(std::move(socket)) {}

  // The operation before has been completed(). Memory that `traffic` names stays until this one is,
  // or nothing is moved any more.
  void Begin(const OpDescriptor& op, PeerTraffic traffic);
  // Moves what can be moved at once, when `reduced` pieces are reduced. True when that was
  // something.
  bool Move(int64_t reduced);

  bool completed() const { return sent_all() && received_all(); }
  bool sent_all() const { return sending_ == parts_out(); }
  bool received_all() const { return receiving_ == parts_in(); }
  // The peer's descriptor is here.
  bool arrived() const { return receiving_ > 0; }
  const WireDescriptor& theirs() const { return theirs_; }
  int64_t leaves() const { return leaves_; }
  // The peer has closed the stream or is gone, with parts still to be moved.
  bool ended() const { return ended_; }
  // Bytes and messages that this operation has sent, without descriptors.
  int64_t sent_bytes() const { return sent_bytes_; }
  int64_t sent_messages() const { return sent_messages_; }

  int descriptor() const { return socket_.get(); }
  // What poll() is to wait for; 0: nothing.
  short events(int64_t reduced) const;

 private:
  // Parts count from 0, the descriptor.
  size_t parts_out() const { return traffic_.out.size() + 1; }
  size_t parts_in() const { return traffic_.in.size() + 1; }
  bool may_send(size_t part, int64_t reduced) const;
  bool may_receive(size_t part, int64_t reduced) const;
  bool Send(int64_t reduced);
  bool Receive(int64_t reduced);

  FileDescriptor socket_;
  WireDescriptor ours_ = {};
  WireDescriptor theirs_ = {};
  PeerTraffic traffic_;
  // The part under way and how much of it has moved.
  size_t sending_ = 1;
  int64_t sent_of_part_ = 0;
  size_t receiving_ = 1;
  int64_t received_of_part_ = 0;
  int64_t leaves_ = 0;
  int64_t sent_bytes_ = 0;
  int64_t sent_messages_ = 0;
  bool ended_ = false;
};

}  // namespace sherd
