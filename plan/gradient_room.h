#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace sherd {

// The memory of a step's gradients, as room for activations until gradients are written there.
// Gradients of units lie one behind the other. Backward goes from the last unit to the first, so
// what the backward of a unit reads may lie where those of units before it come to lie. Between
// steps nobody reads gradients. Places are offsets in bytes from the first unit's gradients, and
// multiples of 64.
class GradientRoom {
 public:
  // None.
  GradientRoom() = default;
  // `bytes` of gradients by unit, multiples of 64. Those of units before `first` are never free.
  GradientRoom(absl::Span<const int64_t> bytes, int first);

  // A place for what the backward of `unit` is the last to read; nullopt when there is none left.
  std::optional<int64_t> Take(int unit, int64_t bytes);
  // The same of the last unit's at the end of the room: where the gradients of the unit before
  // lie, too, which are written next.
  std::optional<int64_t> TakeEnd(int64_t bytes);
  // Bytes of the gradients before the last unit's: what only TakeEnd can give.
  int64_t end_bytes() const;

 private:
  std::vector<int64_t> begins_;  // of gradients, by unit
  int64_t taken_ = 0;            // [0, taken_) is not free
  int64_t end_ = 0;              // nor is what is from here on
};

}  // namespace sherd
