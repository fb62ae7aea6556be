#include "worker/comm/staged_communicator.h"

#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace sherd {

absl::StatusOr<std::unique_ptr<Communicator>> StagedCommunicator::Make(
    std::unique_ptr<Communicator> host, Device& device) {
  std::byte* const arena = device.memory()->Take(Pool::kComm, host->arena_bytes());
  if (arena == nullptr && host->arena_bytes() > 0) {
    // Who waits in the group must not take this for a departure in order.
    host->Abort(device.status().message());
    return device.status();
  }
  return std::unique_ptr<Communicator>(new StagedCommunicator(std::move(host), device, arena));
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

Ticket StagedCommunicator::Enqueue(std::function<absl::Status()> operation) {
  return queue_.Enqueue(
      [this, mark = device_.Mark(), operation = std::move(operation)]() -> absl::Status {
        absl::Status status = mark->Await();
        if (status.ok()) status = operation();
        if (status.ok()) return status;
        // Peers must not wait for a rank whose device has failed.
        queue_.Fail(status);
        host_->Abort(status.message());
        return status;
      });
}

std::byte* StagedCommunicator::Twin(const void* data, int64_t bytes) const {
  const int64_t offset = static_cast<const std::byte*>(data) - arena_.get();
  SHERD_CHECK(bytes == 0 || (offset >= 0 && offset + bytes <= arena_bytes()));
  return host_->arena() + (bytes == 0 ? 0 : offset);
}

absl::Status StagedCommunicator::Fetch(const void* data, int64_t bytes) {
  return device_.Fetch(Twin(data, bytes), data, bytes);
}

absl::Status StagedCommunicator::Deliver(void* data, int64_t bytes) {
  return device_.Deliver(data, Twin(data, bytes), bytes);
}

Ticket StagedCommunicator::AllGather(const void* shard, void* gathered, int64_t bytes) {
  return Enqueue([=, this]() -> absl::Status {
    SHERD_RETURN_IF_ERROR(Fetch(shard, bytes));
    const int64_t whole = size() * bytes;
    if (static_cast<int64_t>(gathered_.size()) < whole) {
      gathered_.resize(static_cast<size_t>(whole));
    }
    SHERD_RETURN_IF_ERROR(
        host_->Wait(host_->AllGather(Twin(shard, bytes), gathered_.data(), bytes)));
    return device_.Deliver(gathered, gathered_.data(), whole);
  });
}

Ticket StagedCommunicator::ReduceScatter(const void* input, int contributors,
                                         TreeAccumulator* into) {
  return Enqueue([=, this]() -> absl::Status {
    const int64_t bytes = size() * into->elements() * SizeOf(into->dtype());
    if (rank() < contributors) SHERD_RETURN_IF_ERROR(Fetch(input, bytes));
    return host_->Wait(host_->ReduceScatter(Twin(input, bytes), contributors, into));
  });
}

Ticket StagedCommunicator::ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments,
                                                DType dtype, int contributors) {
  std::vector<int64_t> lengths(segments.begin(), segments.end());
  return Enqueue([=, this, lengths = std::move(lengths)]() -> absl::Status {
    const int64_t element = SizeOf(dtype);
    const int64_t bytes = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) * element;
    SHERD_RETURN_IF_ERROR(Fetch(data, bytes));
    SHERD_RETURN_IF_ERROR(
        host_->Wait(host_->ReduceScatterInPlace(Twin(data, bytes), lengths, dtype, contributors)));
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
  return Enqueue([=, this]() -> absl::Status {
    const int64_t bytes = elements * SizeOf(dtype);
    SHERD_RETURN_IF_ERROR(Fetch(data, bytes));
    SHERD_RETURN_IF_ERROR(
        host_->Wait(host_->AllReduce(Twin(data, bytes), elements, dtype, contributors)));
    return Deliver(data, bytes);
  });
}

Ticket StagedCommunicator::Broadcast(void* data, int64_t bytes, int root) {
  return Enqueue([=, this]() -> absl::Status {
    if (rank() == root) SHERD_RETURN_IF_ERROR(Fetch(data, bytes));
    SHERD_RETURN_IF_ERROR(host_->Wait(host_->Broadcast(Twin(data, bytes), bytes, root)));
    return rank() == root ? absl::OkStatus() : Deliver(data, bytes);
  });
}

Ticket StagedCommunicator::Barrier() {
  return Enqueue([this] { return host_->Wait(host_->Barrier()); });
}

Ticket StagedCommunicator::Exchange(const void* record, void* records, int64_t bytes) {
  std::string copy(static_cast<const char*>(record), static_cast<size_t>(bytes));
  return Enqueue([=, this, copy = std::move(copy)] {
    return host_->Wait(host_->Exchange(copy.data(), records, bytes));
  });
}

}  // namespace sherd
