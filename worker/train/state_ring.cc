#include "worker/train/state_ring.h"

#include <algorithm>

#include "common/check.h"

namespace sherd {
namespace {

constexpr int64_t kElementBytes = sizeof(float);

}  // namespace

StateRing::StateRing(int64_t chunk_elements, bool with_masters, Accelerator& device,
                     MemoryMeter& meter)
    : chunk_elements_(chunk_elements), with_masters_(with_masters), device_(device) {
  SHERD_CHECK(chunk_elements > 0);
  const int64_t arrays = with_masters ? 3 : 2;
  memory_ = Buffer(meter, Pool::kStaging, kOffloadSlots * arrays * chunk_elements * kElementBytes);
  auto* next = memory_.as<float>();
  const auto take = [&] {
    // Without memory, which the device's status says, nothing is enqueued.
    float* const taken = next;
    if (next != nullptr) next += chunk_elements;
    return taken;
  };
  for (Slot& slot : slots_) {
    slot.state.m = take();
    slot.state.v = take();
    if (with_masters) slot.state.master = take();
    slot.arrived = device.MakeFence();
    slot.worked = device.MakeFence();
    slot.left = device.MakeFence();
    // Its memory is zeroed where it computes.
    device.Record(Lane::kCompute, *slot.left);
  }
}

StateRing::~StateRing() {
  // After a failure there is nobody to tell.
  device_.Synchronize().IgnoreError();
}

StateRing::Slot& StateRing::NextSlot() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  device_.Await(Lane::kIn, *slot.left);
  return slot;
}

void StateRing::Update(const AdamWState& from, const AdamWState& to, float* masters, int64_t begin,
                       int64_t end, Work work) {
  for (int64_t at = begin; at < end; at += chunk_elements_) {
    const int64_t until = std::min(at + chunk_elements_, end);
    const int64_t bytes = (until - at) * kElementBytes;
    Slot& slot = NextSlot();
    AdamWState chunk = slot.state;
    if (with_masters_) {
      device_.Copy(Lane::kIn, chunk.master, from.master + at, bytes);
    } else {
      chunk.master = masters + at;
    }
    device_.Copy(Lane::kIn, chunk.m, from.m + at, bytes);
    device_.Copy(Lane::kIn, chunk.v, from.v + at, bytes);
    device_.Record(Lane::kIn, *slot.arrived);
    device_.Await(Lane::kCompute, *slot.arrived);
    work(at, until, chunk);
    device_.Record(Lane::kCompute, *slot.worked);
    device_.Await(Lane::kOut, *slot.worked);
    if (with_masters_ || to.master != from.master) {
      device_.Copy(Lane::kOut, to.master + at, chunk.master, bytes);
    }
    device_.Copy(Lane::kOut, to.m + at, chunk.m, bytes);
    device_.Copy(Lane::kOut, to.v + at, chunk.v, bytes);
    device_.Record(Lane::kOut, *slot.left);
  }
}

void StateRing::Read(const float* masters, int64_t elements,
                     absl::FunctionRef<void(int64_t, int64_t, const float*)> work) {
  for (int64_t at = 0; at < elements; at += chunk_elements_) {
    const int64_t until = std::min(at + chunk_elements_, elements);
    Slot& slot = NextSlot();
    device_.Copy(Lane::kIn, slot.state.master, masters + at, (until - at) * kElementBytes);
    device_.Record(Lane::kIn, *slot.arrived);
    device_.Await(Lane::kCompute, *slot.arrived);
    work(at, until, slot.state.master);
    device_.Record(Lane::kCompute, *slot.worked);
    device_.Await(Lane::kOut, *slot.worked);
    device_.Record(Lane::kOut, *slot.left);
  }
  device_.Synchronize().IgnoreError();  // status() keeps it
}

}  // namespace sherd
