#include "worker/comm/staged_communicator.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "worker/comm/deadline.h"

namespace sherd {
namespace {

// Looks at the device before the thread sleeps between two: short computations end meanwhile.
constexpr int kSpins = 200;
constexpr std::chrono::microseconds kPollEvery(50);

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> StagedCommunicator::Make(
    std::unique_ptr<Communicator> host, Device& device, const Options& options) {
  std::byte* const arena = device.memory()->Take(Pool::kComm, host->arena_bytes());
  if (arena == nullptr && host->arena_bytes() > 0) {
    // Who waits in the group must not take this for a departure in order.
    host->Abort(device.status().message());
    return device.status();
  }
  return std::unique_ptr<Communicator>(
      new StagedCommunicator(std::move(host), device, arena, options));
}

StagedCommunicator::~StagedCommunicator() {
  if (!queue_.idle()) Abort("the communicator is taken down");
}

void StagedCommunicator::Abort(absl::string_view reason) {
  host_->Abort(reason);
  // Nothing that has not begun begins; what is under way ends with the host's operation.
  absl::Status failure = host_->status();
  failure.Update(absl::AbortedError(reason));
  queue_.Fail(std::move(failure));
}

absl::Status StagedCommunicator::status() const {
  // What failed here has its own code; the host's communicator has heard of it as an abort.
  absl::Status status = queue_.status();
  status.Update(host_->status());
  return status;
}

Ticket StagedCommunicator::Enqueue(Collective collective, std::function<absl::Status()> operation) {
  return queue_.Enqueue([this, collective, mark = device_.Mark(),
                         operation = std::move(operation)]() -> absl::Status {
    absl::Status status = AwaitPassed(*mark, collective);
    if (status.ok()) status = operation();
    if (status.ok()) return status;
    // Peers must not wait for a rank whose device has failed.
    queue_.Fail(status);
    host_->Abort(status.message());
    return status;
  });
}

absl::Status StagedCommunicator::AwaitPassed(DeviceMark& mark, Collective collective) const {
  const Deadline deadline(operation_timeout_);
  for (int poll = 0; !mark.passed(); ++poll) {
    if (poll < kSpins) continue;
    SHERD_RETURN_IF_ERROR(status());
    if (deadline.passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat(NameOf(collective), ": rank ", rank(),
                       "'s device did not finish what comes before it within ",
                       absl::FormatDuration(operation_timeout_)));
    }
    std::this_thread::sleep_for(kPollEvery);
  }
  return device_.status();
}

bool StagedCommunicator::InArena(const void* data, int64_t bytes) const {
  const int64_t offset = static_cast<const std::byte*>(data) - arena_.get();
  return offset >= 0 && offset + bytes <= arena_bytes();
}

std::byte* StagedCommunicator::Twin(const void* data, int64_t bytes) const {
  SHERD_CHECK(bytes == 0 || InArena(data, bytes));
  return host_->arena() + (bytes == 0 ? 0 : static_cast<const std::byte*>(data) - arena_.get());
}

absl::Status StagedCommunicator::Fetch(const void* data, int64_t bytes) {
  std::byte* const to = Twin(data, bytes);
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    SHERD_RETURN_IF_ERROR(status());
    SHERD_RETURN_IF_ERROR(device_.Fetch(to + begin, static_cast<const std::byte*>(data) + begin,
                                        std::min(kPieceBytes, bytes - begin)));
  }
  return absl::OkStatus();
}

absl::Status StagedCommunicator::Deliver(void* to, const std::byte* from, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    SHERD_RETURN_IF_ERROR(status());
    SHERD_RETURN_IF_ERROR(device_.Deliver(static_cast<std::byte*>(to) + begin, from + begin,
                                          std::min(kPieceBytes, bytes - begin)));
  }
  return absl::OkStatus();
}

Ticket StagedCommunicator::AllGather(const void* shard, void* gathered, int64_t bytes) {
  return Enqueue(Collective::kAllGather, [=, this]() -> absl::Status {
    const int64_t whole = size() * bytes;
    const bool stays = InArena(gathered, whole);
    SHERD_CHECK(stays || whole <= static_cast<int64_t>(gathered_.size()));
    std::byte* const there = stays ? Twin(gathered, whole) : gathered_.data();
    SHERD_RETURN_IF_ERROR(Fetch(shard, bytes));
    SHERD_RETURN_IF_ERROR(host_->Wait(host_->AllGather(Twin(shard, bytes), there, bytes)));
    return Deliver(gathered, there, whole);
  });
}

Ticket StagedCommunicator::ReduceScatter(const void* input, int contributors,
                                         TreeAccumulator* into) {
  return Enqueue(Collective::kReduceScatter, [=, this]() -> absl::Status {
    const int64_t bytes = size() * into->elements() * SizeOf(into->dtype());
    if (rank() < contributors) SHERD_RETURN_IF_ERROR(Fetch(input, bytes));
    return host_->Wait(host_->ReduceScatter(Twin(input, bytes), contributors, into));
  });
}

Ticket StagedCommunicator::ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments,
                                                DType dtype, int contributors) {
  std::vector<int64_t> lengths(segments.begin(), segments.end());
  return Enqueue(
      Collective::kReduceScatter, [=, this, lengths = std::move(lengths)]() -> absl::Status {
        const int64_t element = SizeOf(dtype);
        const int64_t bytes = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) * element;
        SHERD_RETURN_IF_ERROR(Fetch(data, bytes));
        SHERD_RETURN_IF_ERROR(host_->Wait(
            host_->ReduceScatterInPlace(Twin(data, bytes), lengths, dtype, contributors)));
        auto* segment = static_cast<std::byte*>(data);
        for (const int64_t length : lengths) {
          const int64_t part = length / size() * element;
          SHERD_RETURN_IF_ERROR(Deliver(segment + rank() * part, part));
          segment += length * element;
        }
        return absl::OkStatus();
      });
}

Ticket StagedCommunicator::AllReduce(void* data, int64_t elements, DType dtype, int contributors) {
  return Enqueue(Collective::kAllReduce, [=, this]() -> absl::Status {
    const int64_t bytes = elements * SizeOf(dtype);
    SHERD_RETURN_IF_ERROR(Fetch(data, bytes));
    SHERD_RETURN_IF_ERROR(
        host_->Wait(host_->AllReduce(Twin(data, bytes), elements, dtype, contributors)));
    return Deliver(data, bytes);
  });
}

Ticket StagedCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  return Enqueue(Collective::kBroadcast, [=, this]() -> absl::Status {
    if (rank() == root) SHERD_RETURN_IF_ERROR(Fetch(data, bytes));
    SHERD_RETURN_IF_ERROR(host_->Wait(host_->Broadcast(Twin(data, bytes), bytes, root)));
    return rank() == root ? absl::OkStatus() : Deliver(data, bytes);
  });
}

Ticket StagedCommunicator::Barrier() {
  return Enqueue(Collective::kBarrier, [this] { return host_->Wait(host_->Barrier()); });
}

Ticket StagedCommunicator::Exchange(const void* record, void* records, int64_t bytes) {
  std::string copy(static_cast<const char*>(record), static_cast<size_t>(bytes));
  return Enqueue(Collective::kExchange, [=, this, copy = std::move(copy)] {
    return host_->Wait(host_->Exchange(copy.data(), records, bytes));
  });
}

}  // namespace sherd
