#pragma once

#include <cstdint>

namespace sherd {

// What one member of a group sends in a collective: every byte that leaves it, once a receiver.
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

// The member's part goes to everyone else.
Wire AllGatherWire(int64_t members, int64_t part_bytes);
// Everyone else's part of what the member contributes goes to its owner.
Wire ReduceScatterWire(int64_t members, int64_t part_bytes, bool contributes = true);
// Of `elements` elements member i sums those from floor(elements · i / members) on and sends the
// sums to everyone; the parts of others that it contributes go to their owners.
Wire AllReduceWire(int64_t members, int64_t member, int64_t elements, int64_t element_bytes,
                   bool contributes = true);

}  // namespace sherd
