#include "worker/comm/nccl/nccl_memory.h"

#include <utility>

#include "common/status_macros.h"

namespace sherd {

absl::StatusOr<NcclMemory> NcclMemory::Create(NcclEpoch& epoch, int64_t arena_bytes, int peers,
                                              int64_t piece_bytes, const Deadline& deadline) {
  NcclMemory memory(epoch);
  memory.arena_bytes_ = arena_bytes;
  memory.peers_ = peers;
  memory.piece_bytes_ = piece_bytes;
  if (arena_bytes > 0) {
    SHERD_ASSIGN_OR_RETURN(memory.arena_, epoch.Allocate(arena_bytes, deadline));
  }
  if (memory.staging_bytes() > 0) {
    SHERD_ASSIGN_OR_RETURN(memory.staging_, epoch.Allocate(memory.staging_bytes(), deadline));
  }
  return memory;
}

NcclMemory::NcclMemory(NcclMemory&& other) noexcept
    : epoch_(other.epoch_),
      arena_(std::exchange(other.arena_, nullptr)),
      staging_(std::exchange(other.staging_, nullptr)),
      arena_bytes_(other.arena_bytes_),
      peers_(other.peers_),
      piece_bytes_(other.piece_bytes_),
      registrations_(std::move(other.registrations_)) {}

NcclMemory::~NcclMemory() {
  for (std::byte* memory : {arena_, staging_}) {
    if (memory != nullptr) epoch_->Free(memory);
  }
}

absl::Status NcclMemory::Register(NcclComm comm, const Deadline& deadline) {
  const auto add = [&](std::byte* memory, int64_t bytes) -> absl::Status {
    if (memory == nullptr) return absl::OkStatus();
    SHERD_ASSIGN_OR_RETURN(void* const handle, epoch_->Register(comm, memory, bytes, deadline));
    if (handle != nullptr) registrations_.push_back(handle);
    return absl::OkStatus();
  };
  SHERD_RETURN_IF_ERROR(add(arena_, arena_bytes_));
  return add(staging_, staging_bytes());
}

}  // namespace sherd
