#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace sherd {

// The collectives that a step sends by, and the groups that they go round in.
enum class WireOp { kAllGather, kReduceScatter, kAllReduce, kExchange };
enum class WireGroup { kData, kShard, kReplica, kTensor, kKvCopy };
inline constexpr int kWireGroups = 5;
// "all_gather", "reduce_scatter", "all_reduce", "exchange".
absl::string_view NameOf(WireOp op);
// "data", "shard", "replica", "tensor", "kv_copy".
absl::string_view NameOf(WireGroup group);

// What one member of a group sends in a collective: every byte that leaves it, once a receiver. An
// empty message is none.
struct Wire {
  int64_t bytes = 0;
  int64_t messages = 0;

  Wire& operator+=(const Wire& other) {
    bytes += other.bytes;
    messages += other.messages;
    return *this;
  }
  friend bool operator==(const Wire&, const Wire&) = default;
};

// What a rank sends by one collective in one group.
struct PlannedWire {
  WireGroup group = WireGroup::kData;
  WireOp op = WireOp::kAllGather;
  Wire wire;
};

// The member's part goes to everyone else.
Wire AllGatherWire(int64_t members, int64_t part_bytes);
// Everyone else's part of what the member contributes goes to its owner.
Wire ReduceScatterWire(int64_t members, int64_t part_bytes, bool contributes = true);
// Of `elements` elements member i sums those from floor(elements · i / members) on and sends the
// sums to everyone; the parts of others that it contributes go to their owners.
Wire AllReduceWire(int64_t members, int64_t member, int64_t elements, int64_t element_bytes,
                   bool contributes = true);

}  // namespace sherd
