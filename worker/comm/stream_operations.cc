#include "worker/comm/stream_operations.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

// A stream may end a moment before the link says why.
constexpr absl::Duration kReasonPatience = absl::Milliseconds(200);

}  // namespace

StreamOperations::StreamOperations(int rank, std::vector<Member> members, Options options)
    : rank_(rank),
      members_(std::move(members)),
      timeout_(options.operation_timeout),
      on_end_(std::move(options.on_end)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      next_sequence_(options.first_sequence) {
  for (Member& member : members_) streams_.emplace_back(std::move(member.data));
  relay_ = std::make_unique<FailureRelay>(
      rank, LinksOf(members_), queue_,
      FailureRelay::Callbacks{.before_end = nullptr, .wake = [this] {
                                const uint64_t one = 1;
                                (void)!::write(wake_.get(), &one, sizeof(one));
                                if (on_end_ != nullptr && queue_.failed()) on_end_(queue_.status());
                              }});
  if (!wake_.valid()) {
    relay_->Fail(absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, " has no descriptor to wait for the other ranks by")));
  }
}

StreamOperations::~StreamOperations() {
  if (!left_) Leave();
}

void StreamOperations::Leave() {
  left_ = true;
  relay_->Leave();
  for (Member& member : members_) CloseGently(member.link);
  (void)queue_.Wait(last_);
}

WireCounts StreamOperations::counts() const {
  absl::MutexLock lock(&counts_mutex_);
  return counts_;
}

Ticket StreamOperations::Enqueue(OpDescriptor op, absl::Duration timeout, Planner plan) {
  last_ = queue_.Enqueue([this, op, timeout, plan = std::move(plan)] {
    const absl::Status status = RunOp(op, timeout, plan);
    if (!status.ok()) relay_->Fail(status);
    return status;
  });
  return last_;
}

Ticket StreamOperations::Barrier() {
  return Enqueue({.collective = Collective::kBarrier},
                 [this](const OpDescriptor&) { return NewWork(); });
}

Ticket StreamOperations::Exchange(const void* record, void* records, int64_t bytes,
                                  absl::Duration timeout,
                                  std::function<absl::Status(WireCount& moved)> then) {
  SHERD_CHECK(bytes >= 0 && bytes <= Communicator::kMaxExchangeBytes);
  auto copy = std::make_shared<const std::string>(static_cast<const char*>(record),
                                                  static_cast<size_t>(bytes));
  auto* const out = static_cast<std::byte*>(records);
  return Enqueue(
      {.collective = Collective::kExchange, .count = bytes}, timeout,
      [this, out, copy = std::move(copy), then = std::move(then)](const OpDescriptor& op) {
        StreamWork work = NewWork();
        work.finish = then;
        if (op.count == 0) return work;
        std::memcpy(out + rank_ * op.count, copy->data(), static_cast<size_t>(op.count));
        ForEachPeer([&](int peer) {
          PeerTraffic& traffic = work.traffic[static_cast<size_t>(peer)];
          const auto* const bytes = reinterpret_cast<const std::byte*>(copy->data());
          traffic.out.push_back({bytes, op.count, 0, /*ends_message=*/true});
          traffic.in.push_back({out + peer * op.count, op.count, 0, /*leaf=*/false});
        });
        return work;
      });
}

absl::Status StreamOperations::RunOp(OpDescriptor op, absl::Duration timeout, const Planner& plan) {
  const auto start = std::chrono::steady_clock::now();
  op.sequence = next_sequence_++;
  StreamWork work = plan(op);
  ForEachPeer([&](int peer) {
    stream(peer).Begin(op, std::move(work.traffic[static_cast<size_t>(peer)]));
  });
  absl::Status status = MoveAll(op, timeout, work);
  SetMissing({});
  WireCount moved;
  if (status.ok() && work.finish != nullptr) status = work.finish(moved);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  Count(op, status, moved, taken.count());
  return status;
}

void StreamOperations::Count(const OpDescriptor& op, const absl::Status& status,
                             const WireCount& moved, double seconds) {
  if (op.sequence == 0) return;
  absl::MutexLock lock(&counts_mutex_);
  WireCount& count = counts_[static_cast<size_t>(op.collective)];
  ForEachPeer([&](int peer) {
    count.bytes += stream(peer).sent_bytes();
    count.messages += stream(peer).sent_messages();
  });
  count.bytes += moved.bytes;
  count.messages += moved.messages;
  if (!status.ok()) return;
  count.Count(moved.seconds > 0 ? moved.seconds : seconds);
}

absl::Status StreamOperations::MoveAll(const OpDescriptor& op, absl::Duration timeout,
                                       const StreamWork& work) {
  int64_t reduced = 0;
  auto last_move = std::chrono::steady_clock::now();
  while (true) {
    if (queue_.failed()) return queue_.status();
    bool moved = false;
    SHERD_RETURN_IF_ERROR(MoveSome(op, reduced, &moved));
    for (; reduced < work.pieces && HasLeavesOf(op, reduced); ++reduced) {
      work.reduce(reduced);
      moved = true;
    }
    if (reduced == work.pieces && Completed()) return absl::OkStatus();
    const auto now = std::chrono::steady_clock::now();
    if (moved) {
      last_move = now;
      continue;
    }
    const absl::Duration idle = absl::FromChrono(now - last_move);
    SHERD_RETURN_IF_ERROR(CheckEnded(op, idle));
    if (idle >= timeout) return Late(op, timeout);
    SetMissing(Absent());
    AwaitStreams(reduced, timeout - idle);
  }
}

absl::Status StreamOperations::MoveSome(const OpDescriptor& op, int64_t reduced, bool* moved) {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    PeerStream& stream = this->stream(peer);
    if (stream.completed()) continue;
    const bool known = stream.arrived();
    if (stream.Move(reduced)) *moved = true;
    if (!known && stream.arrived()) SHERD_RETURN_IF_ERROR(CheckCall(op, peer));
  }
  return absl::OkStatus();
}

bool StreamOperations::Completed() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !stream(peer).completed()) return false;
  }
  return true;
}

bool StreamOperations::HasLeavesOf(const OpDescriptor& op, int64_t piece) const {
  for (int peer = 0; peer < op.contributors; ++peer) {
    if (peer != rank_ && stream(peer).leaves() <= piece) return false;
  }
  return true;
}

void StreamOperations::AwaitStreams(int64_t reduced, absl::Duration patience) {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    const PeerStream& stream = this->stream(peer);
    if (stream.ended()) patience = std::min(patience, kReasonPatience);
    const short events = stream.events(reduced);
    if (events != 0) polled.push_back({stream.descriptor(), events, 0});
  }
  ::poll(polled.data(), polled.size(),
         static_cast<int>(absl::ToInt64Milliseconds(
             std::min(absl::Ceil(patience, absl::Milliseconds(1)), absl::Seconds(10)))));
  uint64_t wakes = 0;
  // Taken before the next look at what the wake is about.
  if (polled[0].revents != 0) (void)!::read(wake_.get(), &wakes, sizeof(wakes));
}

absl::Status StreamOperations::CheckCall(const OpDescriptor& op, int peer) const {
  const absl::StatusOr<OpDescriptor> theirs = DecodeDescriptor(stream(peer).theirs());
  if (theirs.ok()) return CheckSameCall(rank_, op, peer, *theirs);
  return absl::InternalError(absl::StrCat("rank ", peer, " sent what is no operation where rank ",
                                          rank_, " called ", Describe(op)));
}

absl::Status StreamOperations::CheckEnded(const OpDescriptor& op, absl::Duration idle) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || !stream(peer).ended()) continue;
    if (relay_->left(peer)) {
      return absl::AbortedError(absl::StrCat("rank ", peer, " left before ", Describe(op)));
    }
    if (idle < kReasonPatience) continue;
    relay_->Lost(peer);
    return queue_.status();
  }
  return absl::OkStatus();
}

std::vector<int> StreamOperations::Absent() const {
  std::vector<int> absent;
  std::vector<int> slow;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || stream(peer).completed()) continue;
    (stream(peer).arrived() ? slow : absent).push_back(peer);
  }
  return absent.empty() ? slow : absent;
}

absl::Status StreamOperations::Late(const OpDescriptor& op, absl::Duration timeout) const {
  const std::vector<int> missing = Absent();
  const bool came = !missing.empty() && stream(missing.front()).arrived();
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(op), ": rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "),
      came ? " did not finish within " : " did not arrive within ", absl::FormatDuration(timeout)));
}

void StreamOperations::SetMissing(std::vector<int> missing) {
  absl::MutexLock lock(&missing_mutex_);
  missing_ = std::move(missing);
}

std::vector<int> StreamOperations::missing() const {
  absl::MutexLock lock(&missing_mutex_);
  return missing_;
}

StreamWork StreamOperations::NewWork() const {
  StreamWork work;
  work.traffic.resize(members_.size());
  return work;
}

void StreamOperations::ForEachPeer(const std::function<void(int peer)>& visit) const {
  for (int step = 1; step < size(); ++step) visit((rank_ + step) % size());
}

}  // namespace sherd
