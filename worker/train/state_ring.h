#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "plan/offload.h"

namespace sherd {

// Optimizer state whose home is locked memory of the host passes through a few chunks of a device's
// memory: one that comes, one that is worked on, one that leaves, each on a lane of its own, so
// that copies in both directions run beside the computation (docs/adr/0015). Not thread-safe.
class StateRing {
 public:
  // Of chunks of so many elements. `with_masters`: master copies travel too, else they are on the
  // device already. `device` and `meter`, whose device it is, outlive the ring.
  StateRing(int64_t chunk_elements, bool with_masters, Accelerator& device, MemoryMeter& meter);
  // Waits for what travels.
  ~StateRing();
  StateRing(const StateRing&) = delete;

  // Elements of the host's arrays, and where they are on the device while they are worked on.
  using Work = absl::FunctionRef<void(int64_t begin, int64_t end, const AdamWState& chunk)>;
  // Enqueues: elements [begin, end) of `from` come chunk by chunk, `work` enqueues what changes
  // them, and they leave for the same elements of `to`, which may be `from`. Where masters do not
  // travel, `masters` has them on the device, and they leave from there alone, for another `to`.
  void Update(const AdamWState& from, const AdamWState& to, float* masters, int64_t begin,
              int64_t end, Work work);
  // The same of masters alone, that nothing changes. They have been read on return.
  void Read(const float* masters, int64_t elements,
            absl::FunctionRef<void(int64_t begin, int64_t end, const float* chunk)> work);

 private:
  struct Slot {
    AdamWState state;
    std::unique_ptr<DeviceFence> arrived, worked, left;
  };
  Slot& NextSlot();

  const int64_t chunk_elements_;
  const bool with_masters_;
  Accelerator& device_;
  Buffer memory_;
  std::array<Slot, kOffloadSlots> slots_;
  size_t next_ = 0;
};

}  // namespace sherd
