#include "worker/comm/shm_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/comm/futex.h"
#include "worker/comm/link_socket.h"

namespace sherd {
namespace {

// A few hundred nanoseconds: more would take a core from the process that is waited for.
constexpr int kSpins = 100;
// Longest sleep between two looks at what else may end a wait.
constexpr absl::Duration kSleepSlice = absl::Milliseconds(50);
// A failed peer sends its reason before it says that it failed.
constexpr absl::Duration kReasonPatience = absl::Milliseconds(200);

std::vector<int> LinksOf(const std::vector<Member>& members) {
  std::vector<int> links;
  for (const Member& member : members) links.push_back(member.link.get());
  return links;
}

}  // namespace

ShmCommunicator::ShmCommunicator(int rank, std::vector<Member> members,
                                 absl::Duration operation_timeout)
    : rank_(rank),
      members_(std::move(members)),
      operation_timeout_(operation_timeout),
      left_(members_.size()) {
  if (size() == 1) return;
  monitor_ = std::make_unique<PeerMonitor>(
      LinksOf(members_),
      PeerMonitor::Callbacks{
          .on_goodbye = [this](int peer, const LinkGoodbye& goodbye) { OnGoodbye(peer, goodbye); },
          .on_lost = [this](int peer) { OnLost(peer); }});
}

ShmCommunicator::~ShmCommunicator() {
  if (!queue_.idle()) Abort("the communicator was destroyed while operations were under way");
  // Ignored by the others after a failure: one Goodbye ends a link.
  SendGoodbye(LinkGoodbye{});
  monitor_.reset();
}

void ShmCommunicator::Abort(absl::string_view reason) {
  Fail(absl::AbortedError(reason), absl::StrCat("rank ", rank_, " aborted: ", reason), -1, -1);
}

void ShmCommunicator::Fail(const absl::Status& error, const std::string& goodbye, int lost_peer,
                           int by) {
  {
    absl::MutexLock lock(&fail_mutex_);
    if (queue_.failed()) return;
    // First: once the queue has failed, Wait returns and the caller may write to its buffers.
    own().control().failed.store(1);
    ended_by_.store(by);
    queue_.Fail(error);
  }
  SendGoodbye({.code = error.code(), .lost_peer = lost_peer, .text = goodbye});
  WakeOwnThread();
}

void ShmCommunicator::OnGoodbye(int peer, const LinkGoodbye& goodbye) {
  if (goodbye.code == absl::StatusCode::kOk) {
    left_[static_cast<size_t>(peer)].store(true);
    WakeOwnThread();
    return;
  }
  const bool names_member = goodbye.lost_peer >= 0 && goodbye.lost_peer < size();
  const int lost = names_member ? goodbye.lost_peer : -1;
  Fail(StatusOf(goodbye, peer), goodbye.text, lost, lost >= 0 ? lost : peer);
}

void ShmCommunicator::OnLost(int peer) {
  const std::string text = absl::StrCat("rank ", peer, ": its process went away");
  Fail(absl::UnavailableError(text), text, peer, peer);
}

void ShmCommunicator::SendGoodbye(const LinkGoodbye& goodbye) {
  for (const Member& member : members_) {
    // A link that is gone needs none.
    if (member.link.valid()) (void)SendLinkMessage(member.link.get(), goodbye);
  }
}

void ShmCommunicator::WakeOwnThread() {
  // It sleeps on a word of any other member.
  for (const Member& member : members_) {
    FutexWakeAll(member.segment.control().progress);
    FutexWakeAll(member.segment.control().reduced);
  }
}

WireCounts ShmCommunicator::counts() const {
  absl::MutexLock lock(&calls_mutex_);
  WireCounts counts = calls_;
  for (size_t op = 0; op < counts.size(); ++op) {
    const ControlBlock::Sent& sent = own().control().sent[op];
    counts[op].bytes = sent.bytes.load(std::memory_order_relaxed);
    counts[op].messages = sent.messages.load(std::memory_order_relaxed);
  }
  return counts;
}

Ticket ShmCommunicator::EnqueueOp(OpDescriptor op, std::string record, Body body) {
  return queue_.Enqueue([this, op, record = std::move(record), body = std::move(body)] {
    absl::Status status = RunOp(op, record, body);
    if (!status.ok()) Fail(status, std::string(status.message()), -1, -1);
    return status;
  });
}

absl::Status ShmCommunicator::RunOp(OpDescriptor op, const std::string& record, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  op.sequence = ++sequence_;
  Publish(op, record);
  SHERD_RETURN_IF_ERROR(AwaitAll(op, Phase::kArrived));
  SHERD_RETURN_IF_ERROR(CheckCalls(op));
  // Nothing is read in a barrier: who has seen all arrive may go on.
  if (body != nullptr) {
    SHERD_RETURN_IF_ERROR(body(op));
    Advance(op, Phase::kDone);
    SHERD_RETURN_IF_ERROR(AwaitAll(op, Phase::kDone));
    SHERD_RETURN_IF_ERROR(CheckInputsHeld());
  }
  absl::MutexLock lock(&calls_mutex_);
  WireCount& count = calls_[static_cast<size_t>(op.collective)];
  ++count.calls;
  count.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return absl::OkStatus();
}

void ShmCommunicator::Publish(const OpDescriptor& op, const std::string& record) {
  ControlBlock& control = own().control();
  control.slots[op.sequence % 2].descriptor = op;
  std::memcpy(control.records[op.sequence % 2].data(), record.data(), record.size());
  Advance(op, Phase::kArrived);
}

void ShmCommunicator::Advance(const OpDescriptor& op, Phase phase) {
  Tell(own().control().progress, ProgressWord(op.sequence, phase));
}

void ShmCommunicator::Tell(std::atomic<uint32_t>& word, uint32_t value) {
  // Sequentially consistent with Await's pair (sleepers, word): either it sees the new word or we
  // see the sleeper.
  word.store(value);
  if (own().control().sleepers.load() > 0) FutexWakeAll(word);
}

absl::Status ShmCommunicator::CheckCalls(const OpDescriptor& op) const {
  return ForEachPeer([&](int peer) {
    return CheckSameCall(rank_, op, peer,
                         segment(peer).control().slots[op.sequence % 2].descriptor);
  });
}

ShmCommunicator::Milestone ShmCommunicator::MilestoneOf(const OpDescriptor& op, Phase phase) {
  return {&ControlBlock::progress, ProgressWord(op.sequence, phase),
          phase == Phase::kArrived ? "did not arrive" : "did not finish"};
}

bool ShmCommunicator::HasPassed(int peer, const Milestone& milestone) const {
  const std::atomic<uint32_t>& word = segment(peer).control().*milestone.word;
  return HasReached(word.load(std::memory_order_acquire), milestone.wanted);
}

absl::Status ShmCommunicator::AwaitAll(const OpDescriptor& op, Phase phase) {
  const Deadline deadline(operation_timeout_);
  return ForEachPeer([&](int peer) { return Await(op, peer, MilestoneOf(op, phase), deadline); });
}

absl::Status ShmCommunicator::Await(const OpDescriptor& op, int peer, const Milestone& milestone,
                                    const Deadline& deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (HasPassed(peer, milestone)) return absl::OkStatus();
  }
  ControlBlock& control = segment(peer).control();
  std::atomic<uint32_t>& word = control.*milestone.word;
  while (true) {
    control.sleepers.fetch_add(1);
    const uint32_t seen = word.load();
    if (!HasReached(seen, milestone.wanted) && !queue_.failed()) {
      FutexWait(word, seen, std::min(kSleepSlice, deadline.left()));
    }
    control.sleepers.fetch_sub(1);
    // Before the word: a member leaves after its last step.
    const bool left = left_[static_cast<size_t>(peer)].load();
    if (HasPassed(peer, milestone)) return absl::OkStatus();
    if (queue_.failed()) return queue_.status();
    if (left) {
      return absl::AbortedError(absl::StrCat("rank ", peer, " left before ", Describe(op)));
    }
    if (deadline.passed()) return Late(op, milestone);
  }
}

absl::Status ShmCommunicator::Late(const OpDescriptor& op, const Milestone& milestone) const {
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer) {
    if (!HasPassed(peer, milestone)) missing.push_back(peer);
  }
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(op), ": rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "), " ",
      milestone.missed, " within ", absl::FormatDuration(operation_timeout_)));
}

absl::Status ShmCommunicator::CheckInputsHeld() const {
  return ForEachPeer([&](int peer) {
    if (segment(peer).control().failed.load() == 0) return absl::OkStatus();
    const absl::Status reason = queue_.AwaitFailure(kReasonPatience);
    return reason.ok() ? absl::AbortedError(absl::StrCat("rank ", peer, " ended")) : reason;
  });
}

absl::Status ShmCommunicator::ForEachPeer(
    const std::function<absl::Status(int peer)>& visit) const {
  for (int step = 1; step < size(); ++step) {
    SHERD_RETURN_IF_ERROR(visit((rank_ + step) % size()));
  }
  return absl::OkStatus();
}

}  // namespace sherd
