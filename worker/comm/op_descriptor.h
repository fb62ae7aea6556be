#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "worker/comm/communicator.h"

namespace sherd {

// One call of a collective as a member publishes it. Plain bytes: it lies in shared memory.
struct OpDescriptor {
  uint64_t sequence = 0;
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kF32;
  // Elements of a reduction, bytes of the others: of a shard, a slice, the whole data, a record.
  int64_t count = 0;
  int32_t segments = 0;      // of a reduce-scatter in place
  int32_t contributors = 0;  // of reductions
  int32_t root = 0;          // of broadcast
  // Where the member's data begin in its arena; the only field in which members may differ.
  int64_t arena_offset = 0;
};

// "all_reduce #12 of 1024 fp32 from 3 contributors".
std::string Describe(const OpDescriptor& op);

// OK when both ranks called the same; else kFailedPrecondition naming both ranks and calls.
absl::Status CheckSameCall(int rank, const OpDescriptor& ours, int peer,
                           const OpDescriptor& theirs);

// As it goes ahead of an operation's data over TCP: sequence u64, count i64, segments,
// contributors, root i32, collective, dtype u8, two zero bytes; little-endian. The arena's offset
// stays behind.
inline constexpr int64_t kWireDescriptorBytes = 32;
using WireDescriptor = std::array<std::byte, kWireDescriptorBytes>;
WireDescriptor EncodeDescriptor(const OpDescriptor& op);
// kInvalidArgument for what EncodeDescriptor does not make.
absl::StatusOr<OpDescriptor> DecodeDescriptor(const WireDescriptor& bytes);

}  // namespace sherd
