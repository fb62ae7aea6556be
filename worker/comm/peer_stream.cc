#include "worker/comm/peer_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "common/check.h"

namespace sherd {
namespace {

// Parts handed to the kernel at once: enough that small ones travel together, few enough that the
// other peers have their turn.
constexpr size_t kMostParts = 4;

// The parts from the first, of which `done` bytes have moved, to the last that may move.
struct Batch {
  std::array<iovec, kMostParts> parts;
  size_t count = 0;
  int64_t bytes = 0;

  bool full() const { return count == kMostParts; }
  void Add(const void* data, int64_t part_bytes, int64_t done) {
    auto* const begin = static_cast<std::byte*>(const_cast<void*>(data)) + done;
    parts[count++] = {begin, static_cast<size_t>(part_bytes - done)};
    bytes += part_bytes - done;
  }
  msghdr Header() {
    msghdr header = {};
    header.msg_iov = parts.data();
    header.msg_iovlen = count;
    return header;
  }
};

bool NothingNow(ssize_t moved) {
  return moved < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM);
}

}  // namespace

void PeerStream::Begin(const OpDescriptor& op, PeerTraffic traffic) {
  SHERD_CHECK(completed());
  ours_ = EncodeDescriptor(op);
  traffic_ = std::move(traffic);
  sending_ = receiving_ = 0;
  sent_of_part_ = received_of_part_ = 0;
  leaves_ = sent_bytes_ = sent_messages_ = 0;
}

bool PeerStream::Move(int64_t reduced) {
  const bool sent = Send(reduced);
  const bool received = Receive(reduced);
  return sent || received;
}

bool PeerStream::may_send(size_t part, int64_t reduced) const {
  return part < parts_out() && (part == 0 || traffic_.out[part - 1].reduced <= reduced);
}

bool PeerStream::may_receive(size_t part, int64_t reduced) const {
  return part < parts_in() && (part == 0 || traffic_.in[part - 1].reduced <= reduced);
}

short PeerStream::events(int64_t reduced) const {
  if (ended_) return 0;
  return static_cast<short>((may_send(sending_, reduced) ? POLLOUT : 0) |
                            (may_receive(receiving_, reduced) ? POLLIN : 0));
}

bool PeerStream::Send(int64_t reduced) {
  if (ended_) return false;
  Batch batch;
  const size_t first = sending_;
  for (size_t part = first; !batch.full() && may_send(part, reduced); ++part) {
    const int64_t done = part == first ? sent_of_part_ : 0;
    if (part == 0) {
      batch.Add(ours_.data(), kWireDescriptorBytes, done);
    } else {
      batch.Add(traffic_.out[part - 1].data, traffic_.out[part - 1].bytes, done);
    }
  }
  if (batch.count == 0) return false;
  const msghdr header = batch.Header();
  ssize_t moved = 0;
  if (batch.bytes > 0) moved = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (NothingNow(moved)) return false;
  if (moved < 0) {
    ended_ = true;
    return false;
  }
  for (size_t at = 0; at < batch.count; ++at) {
    const auto left = static_cast<ssize_t>(batch.parts[at].iov_len);
    const int64_t of_part = std::min(moved, left);
    if (sending_ > 0) sent_bytes_ += of_part;
    moved -= of_part;
    sent_of_part_ += of_part;
    if (of_part < left) break;
    if (sending_ > 0 && traffic_.out[sending_ - 1].ends_message) ++sent_messages_;
    ++sending_;
    sent_of_part_ = 0;
  }
  return true;
}

bool PeerStream::Receive(int64_t reduced) {
  if (ended_) return false;
  Batch batch;
  const size_t first = receiving_;
  for (size_t part = first; !batch.full() && may_receive(part, reduced); ++part) {
    const int64_t done = part == first ? received_of_part_ : 0;
    if (part == 0) {
      batch.Add(theirs_.data(), kWireDescriptorBytes, done);
    } else {
      batch.Add(traffic_.in[part - 1].to, traffic_.in[part - 1].bytes, done);
    }
  }
  if (batch.count == 0) return false;
  msghdr header = batch.Header();
  ssize_t moved = 0;
  if (batch.bytes > 0) {
    moved = ::recvmsg(socket_.get(), &header, MSG_DONTWAIT);
    if (NothingNow(moved)) return false;
    if (moved <= 0) {
      ended_ = true;
      return false;
    }
  }
  for (size_t at = 0; at < batch.count; ++at) {
    const auto left = static_cast<ssize_t>(batch.parts[at].iov_len);
    const int64_t of_part = std::min(moved, left);
    moved -= of_part;
    received_of_part_ += of_part;
    if (of_part < left) break;
    if (receiving_ > 0 && traffic_.in[receiving_ - 1].leaf) ++leaves_;
    ++receiving_;
    received_of_part_ = 0;
  }
  return true;
}

}  // namespace sherd
