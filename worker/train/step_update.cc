// What a step's gradients make of a unit: where its optimizer state lies, and where it is left.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "plan/schedule.h"
#include "worker/train/phase_timer.h"
#include "worker/train/step_executor.h"

namespace sherd {
namespace {

bool IsTrained(const UpdateSegment& segment) { return !segment.settings.frozen; }

// On the host, where updates leave their state elsewhere than they found it.
void KeepOnHost(const UnitMemory& memory, const UpdateSegment& segment) {
  if (memory.next.master == memory.state.master) return;
  const AdamWState from = memory.state.From(segment.begin);
  const AdamWState to = memory.next.From(segment.begin);
  const auto bytes = static_cast<size_t>(segment.end - segment.begin) * sizeof(float);
  std::memcpy(to.master, from.master, bytes);
  std::memcpy(to.m, from.m, bytes);
  std::memcpy(to.v, from.v, bytes);
}

}  // namespace

void StepExecutor::Update(int unit, const Walk& walk) {
  const PhaseTimer timer(phases_.update);
  UnitMemory& memory = memory_.unit(unit);
  const v1::OptimizerSpec& optimizer = spec_.train().optimizer();
  const double rate = LearningRate(spec_.train(), walk.step);
  AdamWParams params;
  params.beta1 = optimizer.beta1();
  params.beta2 = optimizer.beta2();
  params.eps = optimizer.eps();
  params.step = walk.step;
  params.grad_scale = walk.grad_scale;
  // Nobody has summed those of a frozen unit.
  const bool frozen = plan_.inventory.units[static_cast<size_t>(unit)].frozen;
  const std::byte* const gradients = frozen ? nullptr : Gradients(unit);
  const auto update = [&](const UpdateSegment& part, const AdamWState& from, const AdamWState& to) {
    params.lr = rate * part.settings.lr_scale;
    params.weight_decay = part.settings.weight_decay;
    const GradOut stored{memory.owned_params + part.begin * plan_.param_bytes, memory_.param_type(),
                         /*accumulate=*/false};
    ops_.AdamW(stored, from, to, gradients + part.begin * plan_.grad_bytes, memory_.grad_type(),
               params, part.end - part.begin);
  };
  if (memory_.ring() != nullptr) {
    UpdateThroughRing(memory, update);
  } else {
    const bool in_place = device_.has_own_memory();
    const AdamWState& from = in_place ? memory.device_state : memory.state;
    const AdamWState& to = in_place ? memory.device_state : memory.next;
    for (const UpdateSegment& segment : memory.segments) {
      if (segment.settings.frozen) {
        KeepState(memory, segment);
      } else {
        update(segment, from.From(segment.begin), to.From(segment.begin));
      }
    }
  }
  std::swap(memory.state, memory.next);
  if (device_.has_own_memory() && plan_.keeps_versions && memory_.ring() == nullptr) {
    const int64_t bytes = memory.owned.size() * SizeOf(DType::kF32);
    device_.CopyOut(memory.state.master, memory.device_state.master, bytes);
    device_.CopyOut(memory.state.m, memory.device_state.m, bytes);
    device_.CopyOut(memory.state.v, memory.device_state.v, bytes);
  }
}

void StepExecutor::KeepState(const UnitMemory& memory, const UpdateSegment& segment) {
  // A device updates in place.
  if (device_.has_own_memory() || memory.next.master == memory.state.master) return;
  const AdamWState from = memory.state.From(segment.begin);
  const AdamWState to = memory.next.From(segment.begin);
  const int64_t elements = segment.end - segment.begin;
  ops_.Cast(from.master, DType::kF32, to.master, DType::kF32, elements);
  ops_.Cast(from.m, DType::kF32, to.m, DType::kF32, elements);
  ops_.Cast(from.v, DType::kF32, to.v, DType::kF32, elements);
}

void StepExecutor::UpdateThroughRing(const UnitMemory& memory, PartUpdate update) {
  const auto first = absl::c_find_if(memory.segments, IsTrained);
  const auto last =
      std::find_if(memory.segments.rbegin(), std::make_reverse_iterator(first), IsTrained).base();
  std::for_each(memory.segments.begin(), first,
                [&](const auto& kept) { KeepOnHost(memory, kept); });
  std::for_each(last, memory.segments.end(), [&](const auto& kept) { KeepOnHost(memory, kept); });
  if (first == last) return;
  memory_.ring()->Update(memory.state, memory.next, memory.device_state.master, first->begin,
                         std::prev(last)->end,
                         [&](int64_t begin, int64_t end, const AdamWState& chunk) {
                           // What is frozen among the others passes through as it is.
                           std::for_each(first, last, [&](const UpdateSegment& segment) {
                             const UpdateSegment part{std::max(segment.begin, begin),
                                                      std::min(segment.end, end), segment.settings};
                             if (part.begin >= part.end || !IsTrained(part)) return;
                             const AdamWState at = chunk.From(part.begin - begin);
                             update(part, at, at);
                           });
                         });
}

}  // namespace sherd
