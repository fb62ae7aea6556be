#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/deadline.h"
#include "worker/comm/nccl/nccl_epoch.h"

namespace sherd {

// A member's device memory in a group over NCCL: its arena, and room for one piece of every peer's
// leaf. Both are of NCCL's own kind, which its kernels on other devices can be given access to.
class NcclMemory {
 public:
  // `piece_bytes` for each of `peers`. kResourceExhausted, with the size, when the device has not
  // so much. The epoch outlives it.
  static absl::StatusOr<NcclMemory> Create(NcclEpoch& epoch, int64_t arena_bytes, int peers,
                                           int64_t piece_bytes, const Deadline& deadline);
  NcclMemory(NcclMemory&& other) noexcept;
  NcclMemory& operator=(NcclMemory&&) = delete;
  // After the communicator that it is registered with has left or been aborted.
  ~NcclMemory();

  std::byte* arena() const { return arena_; }
  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t piece_bytes() const { return piece_bytes_; }
  int64_t staging_bytes() const { return peers_ * piece_bytes_; }
  // For the peer's leaf; peers count from 0.
  std::byte* staging(int peer) const { return staging_ + peer * piece_bytes_; }

  // Registers both with a communicator.
  absl::Status Register(NcclComm comm, const Deadline& deadline);
  const std::vector<void*>& registrations() const { return registrations_; }

 private:
  explicit NcclMemory(NcclEpoch& epoch) : epoch_(&epoch) {}

  NcclEpoch* epoch_;
  std::byte* arena_ = nullptr;
  std::byte* staging_ = nullptr;
  int64_t arena_bytes_ = 0;
  int64_t peers_ = 0;
  int64_t piece_bytes_ = 0;
  std::vector<void*> registrations_;
};

}  // namespace sherd
