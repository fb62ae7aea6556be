#include "worker/comm/tcp_communicator.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/deadline.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

// A stream may end a moment before the link says why.
constexpr absl::Duration kReasonPatience = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<TcpMemory> TcpMemory::Create(int64_t arena_bytes, int peers) {
  TcpMemory memory;
  memory.arena_bytes_ = arena_bytes;
  memory.peers_ = peers;
  SHERD_ASSIGN_OR_RETURN(const FileDescriptor pages, NewPages(arena_bytes, memory.staging_bytes()));
  SHERD_ASSIGN_OR_RETURN(memory.arena_,
                         PageMapping::Map(pages, 0, arena_bytes, PROT_READ | PROT_WRITE));
  SHERD_ASSIGN_OR_RETURN(memory.staging_,
                         PageMapping::Map(pages, PageCeil(arena_bytes), memory.staging_bytes(),
                                          PROT_READ | PROT_WRITE));
  return memory;
}

TcpCommunicator::TcpCommunicator(int rank, std::vector<Member> members, TcpMemory memory,
                                 absl::Duration operation_timeout)
    : rank_(rank),
      members_(std::move(members)),
      memory_(std::move(memory)),
      operation_timeout_(operation_timeout),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SHERD_CHECK(wake_.valid());
  for (Member& member : members_) streams_.emplace_back(std::move(member.data));
  relay_ = std::make_unique<FailureRelay>(
      rank, LinksOf(members_), queue_,
      FailureRelay::Callbacks{.before_end = nullptr, .wake = [this] {
                                const uint64_t one = 1;
                                (void)!::write(wake_.get(), &one, sizeof(one));
                              }});
}

TcpCommunicator::~TcpCommunicator() {
  relay_->Leave();
  for (Member& member : members_) CloseGently(member.link);
}

WireCounts TcpCommunicator::counts() const {
  absl::MutexLock lock(&counts_mutex_);
  return counts_;
}

void TcpCommunicator::CheckInArena(const void* data, int64_t bytes) const {
  if (bytes == 0) return;
  const int64_t offset = static_cast<const std::byte*>(data) - arena();
  SHERD_CHECK(offset >= 0 && bytes >= 0 && offset <= arena_bytes() - bytes);
}

Ticket TcpCommunicator::EnqueueOp(OpDescriptor op, Planner plan) {
  return queue_.Enqueue([this, op, plan = std::move(plan)] {
    const absl::Status status = RunOp(op, plan);
    if (!status.ok()) relay_->Fail(status);
    return status;
  });
}

absl::Status TcpCommunicator::RunOp(OpDescriptor op, const Planner& plan) {
  const auto start = std::chrono::steady_clock::now();
  op.sequence = ++sequence_;
  Work work = plan(op);
  ForEachPeer([&](int peer) {
    stream(peer).Begin(op, std::move(work.traffic[static_cast<size_t>(peer)]));
  });
  const absl::Status status = MoveAll(op, work);
  SetMissing({});
  if (status.ok() && work.finish != nullptr) work.finish();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  Count(op, status, taken.count());
  return status;
}

void TcpCommunicator::Count(const OpDescriptor& op, const absl::Status& status, double seconds) {
  absl::MutexLock lock(&counts_mutex_);
  WireCount& count = counts_[static_cast<size_t>(op.collective)];
  ForEachPeer([&](int peer) {
    count.bytes += stream(peer).sent_bytes();
    count.messages += stream(peer).sent_messages();
  });
  if (!status.ok()) return;
  count.Count(seconds);
}

absl::Status TcpCommunicator::MoveAll(const OpDescriptor& op, const Work& work) {
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
    if (idle >= operation_timeout_) return Late(op);
    SetMissing(Absent());
    AwaitStreams(reduced, operation_timeout_ - idle);
  }
}

absl::Status TcpCommunicator::MoveSome(const OpDescriptor& op, int64_t reduced, bool* moved) {
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

bool TcpCommunicator::Completed() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !stream(peer).completed()) return false;
  }
  return true;
}

bool TcpCommunicator::HasLeavesOf(const OpDescriptor& op, int64_t piece) const {
  for (int peer = 0; peer < op.contributors; ++peer) {
    if (peer != rank_ && stream(peer).leaves() <= piece) return false;
  }
  return true;
}

void TcpCommunicator::AwaitStreams(int64_t reduced, absl::Duration patience) {
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

absl::Status TcpCommunicator::CheckCall(const OpDescriptor& op, int peer) const {
  const absl::StatusOr<OpDescriptor> theirs = DecodeDescriptor(stream(peer).theirs());
  if (theirs.ok()) return CheckSameCall(rank_, op, peer, *theirs);
  return absl::InternalError(absl::StrCat("rank ", peer, " sent what is no operation where rank ",
                                          rank_, " called ", Describe(op)));
}

absl::Status TcpCommunicator::CheckEnded(const OpDescriptor& op, absl::Duration idle) {
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

std::vector<int> TcpCommunicator::Absent() const {
  std::vector<int> absent;
  std::vector<int> slow;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || stream(peer).completed()) continue;
    (stream(peer).arrived() ? slow : absent).push_back(peer);
  }
  return absent.empty() ? slow : absent;
}

absl::Status TcpCommunicator::Late(const OpDescriptor& op) const {
  const std::vector<int> missing = Absent();
  const bool came = !missing.empty() && stream(missing.front()).arrived();
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(op), ": rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "),
      came ? " did not finish within " : " did not arrive within ",
      absl::FormatDuration(operation_timeout_)));
}

void TcpCommunicator::SetMissing(std::vector<int> missing) {
  absl::MutexLock lock(&missing_mutex_);
  missing_ = std::move(missing);
}

std::vector<int> TcpCommunicator::missing() const {
  absl::MutexLock lock(&missing_mutex_);
  return missing_;
}

void TcpCommunicator::ForEachPeer(const std::function<void(int peer)>& visit) const {
  for (int step = 1; step < size(); ++step) visit((rank_ + step) % size());
}

}  // namespace sherd
