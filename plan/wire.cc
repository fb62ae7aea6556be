#include "plan/wire.h"

namespace sherd {

Wire AllGatherWire(int64_t members, int64_t part_bytes) {
  return {(members - 1) * part_bytes, members - 1};
}

Wire ReduceScatterWire(int64_t members, int64_t part_bytes, bool contributes) {
  return contributes ? AllGatherWire(members, part_bytes) : Wire{};
}

Wire AllReduceWire(int64_t members, int64_t member, int64_t elements, int64_t element_bytes,
                   bool contributes) {
  const int64_t part = elements * (member + 1) / members - elements * member / members;
  Wire wire = AllGatherWire(members, part * element_bytes);
  if (contributes) wire += {(elements - part) * element_bytes, members - 1};
  return wire;
}

}  // namespace sherd
