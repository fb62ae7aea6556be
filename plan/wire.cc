#include "plan/wire.h"

namespace sherd {

absl::string_view NameOf(WireOp op) {
  switch (op) {
    case WireOp::kAllGather:
      return "all_gather";
    case WireOp::kReduceScatter:
      return "reduce_scatter";
    case WireOp::kAllReduce:
      return "all_reduce";
    case WireOp::kExchange:
      return "exchange";
  }
  return "";
}

absl::string_view NameOf(WireGroup group) {
  switch (group) {
    case WireGroup::kData:
      return "data";
    case WireGroup::kShard:
      return "shard";
    case WireGroup::kReplica:
      return "replica";
    case WireGroup::kTensor:
      return "tensor";
    case WireGroup::kKvCopy:
      return "kv_copy";
  }
  return "";
}

Wire AllGatherWire(int64_t members, int64_t part_bytes) {
  return {(members - 1) * part_bytes, part_bytes > 0 ? members - 1 : 0};
}

Wire ReduceScatterWire(int64_t members, int64_t part_bytes, bool contributes) {
  return contributes ? AllGatherWire(members, part_bytes) : Wire{};
}

Wire AllReduceWire(int64_t members, int64_t member, int64_t elements, int64_t element_bytes,
                   bool contributes) {
  const auto part = [&](int64_t of) {
    return elements * (of + 1) / members - elements * of / members;
  };
  Wire wire = AllGatherWire(members, part(member) * element_bytes);
  for (int64_t other = 0; contributes && other < members; ++other) {
    if (other != member) wire += {part(other) * element_bytes, part(other) > 0 ? 1 : 0};
  }
  return wire;
}

}  // namespace sherd
