#include "worker/comm/shm_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "worker/comm/futex.h"

namespace sherd {
namespace {

// A few hundred nanoseconds: more would take a core from the process that is waited for.
constexpr int kSpins = 100;
// Longest sleep between two looks at what else may end a wait.
constexpr absl::Duration kSleepSlice = absl::Milliseconds(50);
// A failed peer sends its reason before it says that it failed.
constexpr absl::Duration kReasonPatience = absl::Milliseconds(200);

}  // namespace

ShmCommunicator::ShmCommunicator(int rank, std::vector<Member> members,
                                 absl::Duration operation_timeout)
    : rank_(rank), members_(std::move(members)), operation_timeout_(operation_timeout) {
  relay_ = std::make_unique<FailureRelay>(
      rank, LinksOf(members_), queue_,
      FailureRelay::Callbacks{.before_end = [this] { own().control().failed.store(1); },
                              .wake = [this] { WakeOwnThread(); }});
}

ShmCommunicator::~ShmCommunicator() { relay_->Leave(); }

void ShmCommunicator::WakeOwnThread() {
  // It sleeps on a word of any other member.
  for (const Member& member : members_) {
    FutexWakeAll(member.segment.control().progress);
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
    if (!status.ok()) relay_->Fail(status);
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
  calls_[static_cast<size_t>(op.collective)].Count(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return absl::OkStatus();
}

void ShmCommunicator::Publish(const OpDescriptor& op, const std::string& record) {
  ControlBlock& control = own().control();
  control.slots[op.sequence % 2].descriptor = op;
  std::memcpy(control.records[op.sequence % 2].data(), record.data(), record.size());
  Advance(op, Phase::kArrived);
}

void ShmCommunicator::Advance(const OpDescriptor& op, Phase phase) {
  ControlBlock& control = own().control();
  // Sequentially consistent with Await's pair (sleepers, progress): either it sees the new word or
  // we see the sleeper.
  control.progress.store(ProgressWord(op.sequence, phase));
  if (control.sleepers.load() > 0) FutexWakeAll(control.progress);
}

absl::Status ShmCommunicator::CheckCalls(const OpDescriptor& op) const {
  return ForEachPeer([&](int peer) {
    return CheckSameCall(rank_, op, peer,
                         segment(peer).control().slots[op.sequence % 2].descriptor);
  });
}

bool ShmCommunicator::HasPassed(int peer, const OpDescriptor& op, Phase phase) const {
  const std::atomic<uint32_t>& progress = segment(peer).control().progress;
  return HasReached(progress.load(std::memory_order_acquire), ProgressWord(op.sequence, phase));
}

absl::Status ShmCommunicator::AwaitAll(const OpDescriptor& op, Phase phase) {
  const Deadline deadline(operation_timeout_);
  awaited_.store(kWaits | ProgressWord(op.sequence, phase), std::memory_order_relaxed);
  const absl::Status status =
      ForEachPeer([&](int peer) { return Await(op, peer, phase, deadline); });
  awaited_.store(0, std::memory_order_relaxed);
  return status;
}

std::vector<int> ShmCommunicator::missing() const {
  const uint64_t awaited = awaited_.load(std::memory_order_relaxed);
  std::vector<int> missing;
  if (awaited == 0) return missing;
  for (int peer = 0; peer < size(); ++peer) {
    const uint32_t progress = segment(peer).control().progress.load(std::memory_order_acquire);
    const bool late = !HasReached(progress, static_cast<uint32_t>(awaited));
    if (peer != rank_ && late) missing.push_back(peer);
  }
  return missing;
}

absl::Status ShmCommunicator::Await(const OpDescriptor& op, int peer, Phase phase,
                                    const Deadline& deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (HasPassed(peer, op, phase)) return absl::OkStatus();
  }
  ControlBlock& control = segment(peer).control();
  while (true) {
    control.sleepers.fetch_add(1);
    const uint32_t seen = control.progress.load();
    if (!HasReached(seen, ProgressWord(op.sequence, phase)) && !queue_.failed()) {
      FutexWait(control.progress, seen, std::min(kSleepSlice, deadline.left()));
    }
    control.sleepers.fetch_sub(1);
    // Before the word: a member leaves after its last step.
    const bool left = relay_->left(peer);
    if (HasPassed(peer, op, phase)) return absl::OkStatus();
    if (queue_.failed()) return queue_.status();
    if (left) {
      return absl::AbortedError(absl::StrCat("rank ", peer, " left before ", Describe(op)));
    }
    if (deadline.passed()) return Late(op, phase);
  }
}

absl::Status ShmCommunicator::Late(const OpDescriptor& op, Phase phase) const {
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer) {
    if (!HasPassed(peer, op, phase)) missing.push_back(peer);
  }
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(op), ": rank", missing.size() > 1 ? "s " : " ", absl::StrJoin(missing, ", "), " ",
      phase == Phase::kArrived ? "did not arrive" : "did not finish", " within ",
      absl::FormatDuration(operation_timeout_)));
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
