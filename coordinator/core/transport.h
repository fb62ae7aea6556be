#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "sherd/v1/layout.pb.h"

namespace sherd {

// What a group's members exchange data through.
enum class GroupTransport { kSharedMemory, kTcp, kNccl };

// What decides that, of a member's worker.
struct TransportClaim {
  // "": it shares memory with itself alone.
  absl::string_view memory_domain;
  // Workers of other domains can come to it.
  bool on_network = false;
  // Of NcclVersions.
  int32_t nccl_version = 0;
};

// By rank, of the GPUs that the workers of a world's ranks have: the version of NCCL that the rank
// can be in a group by. 0: it has no GPU that is known, or no NCCL, or shares its GPU with another
// rank of the world.
std::vector<int32_t> NcclVersions(const std::vector<const v1::Gpu*>& gpus);

// NCCL where all members have it, in one version, and can come to each other; else memory where
// they can all map it; else TCP. Of at least one member.
GroupTransport ChooseTransport(absl::Span<const TransportClaim> members);

}  // namespace sherd
