#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace sherd {

// A value that cannot be confused with another of the same representation.
template <typename Tag, typename Rep>
class StrongValue {
 public:
  StrongValue() = default;
  explicit StrongValue(Rep value) : value_(std::move(value)) {}
  const Rep& value() const { return value_; }
  friend auto operator<=>(const StrongValue&, const StrongValue&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const StrongValue& id) {
    return H::combine(std::move(state), id.value_);
  }

 private:
  Rep value_{};
};

using JobId = StrongValue<struct JobIdTag, std::string>;
// Stable over a worker's lives: host and device.
using WorkerId = StrongValue<struct WorkerIdTag, std::string>;
// One life of a worker process; drawn at random when it starts.
using Incarnation = StrongValue<struct IncarnationTag, uint64_t>;
// One formation of a job's world; grows by one at every re-formation, starting at 1.
using Epoch = StrongValue<struct EpochTag, int64_t>;

}  // namespace sherd
